/* SentencePiece's precompiled normalisation: a double-array trie from byte strings to places in a
 * block of replacements, in base 64. Every step into the trie is checked, so that a broken one
 * finds nothing. Called by normalize.c. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"
#include "text/unicode.h"

struct aci_charsmap {
  uint32_t *unit;
  size_t n_unit;
  char *text; /* replacements, each ends with NUL */
  size_t n_text;
};

static int digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* base64: a 32-bit size, so many bytes of 32-bit trie units, then the replacements, all
 * little-endian. */
ac_status aci_charsmap_new(const char *base64, size_t n, aci_charsmap **out, ac_err *e) {
  ac_status st = AC_OK;
  size_t k = 0, size;
  *out = NULL;
  while (n > 0 && base64[n - 1] == '=') n--;
  unsigned char *bytes = malloc(n / 4 * 3 + 4);
  aci_charsmap *m = calloc(1, sizeof *m);
  if (bytes == NULL || m == NULL) {
    st = aci_no_memory(e);
    goto done;
  }
  uint32_t bits = 0;
  for (size_t i = 0; i < n; i++) {
    const int d = digit(base64[i]);
    if (d < 0) {
      st = AC_FAIL(e, PARSE, "precompiled_charsmap: byte %zu is not a digit of base 64", i);
      goto done;
    }
    bits = bits << 6 | (uint32_t)d;
    if (i % 4 != 0) bytes[k++] = (unsigned char)(bits >> (6 - i % 4 * 2) & 255);
  }
  size = k >= 4 ? bytes[0] | (size_t)bytes[1] << 8 | (size_t)bytes[2] << 16 | (size_t)bytes[3] << 24
                : 0;
  if (k < 8 || size < 4 || size > k - 4 || size % 4 != 0) {
    st = AC_FAIL(e, PARSE, "precompiled_charsmap: its trie does not fit in its %zu bytes", k);
    goto done;
  }
  m->n_unit = size / 4;
  m->n_text = k - 4 - size;
  m->unit = malloc(size);
  m->text = malloc(m->n_text + 1);
  if (m->unit == NULL || m->text == NULL) {
    st = aci_no_memory(e);
    goto done;
  }
  for (size_t i = 0; i < m->n_unit; i++) {
    const unsigned char *b = bytes + 4 + 4 * i;
    m->unit[i] = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
  }
  memcpy(m->text, bytes + 4 + size, m->n_text);
  m->text[m->n_text] = 0;
  if (!aci_utf8_valid(m->text, m->n_text)) {
    st = AC_FAIL(e, PARSE, "precompiled_charsmap: its replacements are not UTF-8");
    goto done;
  }
  *out = m;
  m = NULL;
done:
  aci_charsmap_free(m);
  free(bytes);
  return st;
}

void aci_charsmap_free(aci_charsmap *m) {
  if (m == NULL) return;
  free(m->unit);
  free(m->text);
  free(m);
}

/* The replacement of s, taken from its shortest prefix in the trie. NULL: none. */
static const char *replacement(const aci_charsmap *m, const char *s, size_t n) {
  uint32_t unit = m->unit[0];
  size_t node = unit >> 10 << ((unit & 1u << 9) >> 6);
  for (size_t i = 0; i < n && s[i] != 0; i++) {
    node ^= (unsigned char)s[i];
    if (node >= m->n_unit) return NULL;
    unit = m->unit[node];
    if ((unit & (1u << 31 | 0xFF)) != (unsigned char)s[i]) return NULL;
    node ^= (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
    if ((unit >> 8 & 1) == 0) continue;
    if (node >= m->n_unit) return NULL;
    const size_t at = m->unit[node] & ((1u << 31) - 1);
    /* in the middle of a character: not a text */
    return at < m->n_text && ((unsigned char)m->text[at] & 0xC0) != 0x80 ? m->text + at : NULL;
  }
  return NULL;
}

const char *aci_charsmap_longest(const aci_charsmap *m, const char *s, size_t n, size_t *length) {
  const char *found = NULL;
  uint32_t unit = m->unit[0];
  size_t node = unit >> 10 << ((unit & 1u << 9) >> 6);
  for (size_t i = 0; i < n && s[i] != 0; i++) {
    node ^= (unsigned char)s[i];
    if (node >= m->n_unit) break;
    unit = m->unit[node];
    if ((unit & (1u << 31 | 0xFF)) != (unsigned char)s[i]) break;
    node ^= (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
    if ((unit >> 8 & 1) == 0) continue;
    if (node >= m->n_unit) break;
    const size_t at = m->unit[node] & ((1u << 31) - 1);
    const bool whole = i + 1 == n || ((unsigned char)s[i + 1] & 0xC0) != 0x80;
    if (whole && at < m->n_text && ((unsigned char)m->text[at] & 0xC0) != 0x80)
      found = m->text + at, *length = i + 1;
  }
  return found;
}

static size_t count(const char *s, size_t n) {
  size_t k = 0;
  for (size_t i = 0; i < n; i++) k += ((unsigned char)s[i] & 0xC0) != 0x80;
  return k;
}

/* Holds back the last character, because it also accounts for characters removed after it. */
typedef struct writer {
  aci_rewrite w;
  uint32_t c;
  int change;
  bool waits;
} writer;

static bool flush(writer *w) {
  const bool ok = !w->waits || aci_rewrite_put(&w->w, w->c, w->change);
  w->waits = false;
  return ok;
}

static bool put_char(writer *w, uint32_t c, int change) {
  if (!flush(w)) return false;
  w->c = c;
  w->change = change;
  w->waits = true;
  return true;
}

/* k characters are replaced. If the replacement has more, the extra ones are new. If it has fewer,
 * its last one stands for the rest. */
static bool put(writer *w, const char *with, size_t k) {
  const size_t n = count(with, strlen(with));
  for (size_t i = 0; i < n; i++)
    if (!put_char(w, aci_utf8_next(&with), i >= k)) return false;
  if (n < k && w->waits) w->change -= (int)(k - n);
  return true;
}

ac_status aci_charsmap_apply(const aci_charsmap *m, aci_text *in, aci_text *out, bool *changed,
                             ac_err *e) {
  writer w = {.w = {in, out, 0}};
  *changed = false;
  for (const char *s = in->s, *end = in->s + in->n; s < end;) {
    const size_t n = aci_uni_grapheme(s, (size_t)(end - s));
    const char *with = n < 6 ? replacement(m, s, n) : NULL;
    if (with != NULL) {
      *changed = true;
      if (!put(&w, with, count(s, n))) return aci_no_memory(e);
      s += n;
      continue;
    }
    for (const char *stop = s + n; s < stop;) {
      const char *next = s;
      const uint32_t c = aci_utf8_next(&next);
      with = replacement(m, s, (size_t)(next - s));
      if (with != NULL) *changed = true;
      if (with != NULL ? !put(&w, with, 1) : !put_char(&w, c, 0)) return aci_no_memory(e);
      s = next;
    }
  }
  return flush(&w) ? AC_OK : aci_no_memory(e);
}
