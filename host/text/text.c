/* Text that tracks the origin of its bytes, and the pieces it is cut into. Called by the steps
 * before the model. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"
#include "text/unicode.h"

bool aci_text_room(aci_text *t, size_t more) {
  const size_t n = (size_t)t->n + more;
  if (n <= t->cap) return true;
  const size_t cap = n + n / 2 + 64;
  if (cap > INT32_MAX) return false;
  char *s = realloc(t->s, cap);
  if (s == NULL) return false;
  t->s = s;
  if (!t->tracked) {
    free(t->from);
    free(t->to);
    t->from = t->to = NULL;
  } else {
    uint32_t *from = realloc(t->from, cap * sizeof *from);
    if (from != NULL) t->from = from;
    uint32_t *to = realloc(t->to, cap * sizeof *to);
    if (to != NULL) t->to = to;
    if (from == NULL || to == NULL) return false;
  }
  t->cap = (uint32_t)cap;
  return true;
}

bool aci_text_put(aci_text *t, uint32_t c, uint32_t from, uint32_t to) {
  if (!aci_text_room(t, 4)) return false;
  const int k = aci_utf8_put(t->s + t->n, c);
  if (t->tracked)
    for (int i = 0; i < k; i++) t->from[t->n + (uint32_t)i] = from, t->to[t->n + (uint32_t)i] = to;
  t->n += (uint32_t)k;
  return true;
}

bool aci_text_copy(aci_text *t, const aci_text *src, uint32_t begin, uint32_t end) {
  const uint32_t n = end - begin;
  if (!aci_text_room(t, n)) return false;
  if (n == 0) return true;
  memcpy(t->s + t->n, src->s + begin, n);
  if (t->tracked && src->same) {
    for (uint32_t i = begin; i < end;) {
      const uint32_t k = (uint32_t)aci_utf8_size((unsigned char)src->s[i]);
      for (uint32_t j = i; j < i + k && j < end; j++)
        t->from[t->n + j - begin] = i, t->to[t->n + j - begin] = i + k;
      i += k;
    }
  } else if (t->tracked) {
    memcpy(t->from + t->n, src->from + begin, n * sizeof *t->from);
    memcpy(t->to + t->n, src->to + begin, n * sizeof *t->to);
  }
  t->n += n;
  return true;
}

void aci_text_span(const aci_text *t, uint32_t begin, uint32_t end, uint32_t *from, uint32_t *to) {
  if (t->same) {
    while (begin > 0 && begin < t->n && ((unsigned char)t->s[begin] & 0xC0) == 0x80) begin--;
    while (end < t->n && ((unsigned char)t->s[end] & 0xC0) == 0x80) end++;
    *from = begin;
    *to = end;
  } else if (t->tracked && begin < end) {
    *from = t->from[begin];
    *to = t->to[end - 1];
  } else if (t->tracked) {
    *from = *to = begin > 0 ? t->to[begin - 1] : t->origin;
  } else {
    *from = *to = 0;
  }
}

void aci_text_clear(aci_text *t, bool tracked, uint32_t origin) {
  if (t->same || (tracked && t->from == NULL)) aci_text_fini(t);
  t->tracked = tracked;
  t->origin = origin;
  t->n = 0;
}

void aci_text_fini(aci_text *t) {
  if (!t->same) {
    free(t->s);
    free(t->from);
    free(t->to);
  }
  *t = (aci_text){0};
}

bool aci_rewrite_put(aci_rewrite *w, uint32_t c, int change) {
  const aci_text *in = w->in;
  uint32_t from = 0, to = 0;
  if (in->n > 0) {
    uint32_t i = w->at;
    if (change > 0) i = i == 0 ? UINT32_MAX : i - 1;
    else if (i >= in->n) i = in->n - 1;
    if (i == UINT32_MAX) from = to = in->origin;
    else if (in->tracked) from = in->from[i], to = in->to[i];
  }
  if (change <= 0)
    for (int k = 0; k <= -change && w->at < in->n; k++)
      w->at += (uint32_t)aci_utf8_size((unsigned char)in->s[w->at]);
  return aci_text_put(w->out, c, from, to);
}

bool aci_piece_add(aci_pieces *l, uint32_t begin, uint32_t end, int32_t token) {
  if (!ACI_GROW(l->p, l->cap, l->n + 1)) return false;
  l->p[l->n++] = (aci_piece){begin, end, token};
  return true;
}

/* ---- ByteLevel's alphabet: printing bytes of Latin-1 are themselves, the others are U+0100 and up, in order ---- */
static bool plain_byte(unsigned char b) {
  return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
}

uint32_t aci_byte_char(unsigned char b) {
  if (plain_byte(b)) return b;
  if (b <= 0x20) return 0x100u + b;                /* 0x00 .. 0x20: 33 of them */
  if (b <= 0xA0) return 0x100u + 33 + (b - 0x7Fu); /* 0x7F .. 0xA0: 34 */
  return 0x143;                                    /* 0xAD */
}

int aci_char_byte(uint32_t c) {
  if (c < 0x100) return plain_byte((unsigned char)c) ? (int)c : -1;
  if (c <= 0x120) return (int)(c - 0x100);
  if (c <= 0x142) return (int)(c - 0x100 - 33 + 0x7F);
  return c == 0x143 ? 0xAD : -1;
}
