/* Text for terminals, see visible.h. Called for every error message (err.c), for paths in messages
 * (open_read.c), and from Lua as accel.console.visible. */
#include "base/visible.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The character at s and its length. 0 if no valid character begins there. */
static int decode(const unsigned char *s, size_t n, uint32_t *code) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const int len = s[0] < 0x80             ? 1
                  : (s[0] & 0xE0) == 0xC0 ? 2
                  : (s[0] & 0xF0) == 0xE0 ? 3
                  : (s[0] & 0xF8) == 0xF0 ? 4
                                          : 0;
  if (len == 0 || (size_t)len > n) return 0;
  uint32_t c = len == 1 ? s[0] : s[0] & (0xFFu >> (len + 1));
  for (int i = 1; i < len; i++) {
    if ((s[i] & 0xC0) != 0x80) return 0;
    c = c << 6 | (s[i] & 0x3Fu);
  }
  if (c < least[len] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return 0;
  *code = c;
  return len;
}

/* Unicode's controls of direction and layout (Bidi_Control, the separators, zero width, tags). a
 * byte-order mark is one of them. */
static bool hidden(uint32_t c, bool lines) {
  if (c < 0x20) return !lines || (c != '\n' && c != '\t');
  return (c >= 0x7F && c <= 0x9F) || c == 0xAD || c == 0x61C || c == 0x180E ||
         (c >= 0x200B && c <= 0x200F && c != 0x200D) || (c >= 0x2028 && c <= 0x202E) ||
         (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFB) ||
         (c >= 0xE0000 && c <= 0xE0FFF);
}

size_t aci_visible(char *out, size_t cap, const char *s, size_t n, bool lines, size_t *needed) {
  const unsigned char *p = (const unsigned char *)s;
  size_t len = 0, whole = 0;
  bool full = cap == 0;
  for (size_t i = 0; i < n;) {
    uint32_t c = 0;
    char as[16];
    const char *piece = s + i;
    const int k = decode(p + i, n - i, &c);
    size_t m = (size_t)k;
    if (k == 0 || hidden(c, lines)) {
      m = (size_t)snprintf(as, sizeof as,
                           k == 0       ? "\\x%02x"
                           : c < 0x80   ? "\\x%02x"
                           : c > 0xFFFF ? "\\U%08x"
                                        : "\\u%04x",
                           (unsigned)(k == 0 ? p[i] : c));
      piece = as;
    }
    whole += m;
    full = full || m > cap - 1 - len;
    if (!full) {
      memcpy(out + len, piece, m);
      len += m;
    }
    i += k == 0 ? 1 : (size_t)k;
  }
  if (cap > 0) out[len] = 0;
  if (needed != NULL) *needed = whole;
  return len;
}

bool aci_is_visible(const char *s, size_t n, bool lines) {
  const unsigned char *p = (const unsigned char *)s;
  for (size_t i = 0; i < n;) {
    uint32_t c = 0;
    const int k = decode(p + i, n - i, &c);
    if (k == 0 || hidden(c, lines)) return false;
    i += (size_t)k;
  }
  return true;
}
