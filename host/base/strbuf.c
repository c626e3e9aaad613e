/* The growable text buffer (strbuf.h). Called by every writer. */
#include "base/strbuf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void aci_strbuf_fini(aci_strbuf *b) {
  free(b->s);
  *b = (aci_strbuf){0};
}

bool aci_strbuf_reserve(aci_strbuf *b, size_t n) {
  if (b->failed) return false;
  if (b->s != NULL && n < b->cap - b->len) return true;
  size_t cap = b->cap < 64 ? 64 : b->cap;
  if (n >= SIZE_MAX / 4 || b->len >= SIZE_MAX / 4) {
    b->failed = true;
    return false;
  }
  while (cap <= b->len + n) cap += cap / 2;
  char *s = realloc(b->s, cap);
  if (s == NULL) {
    b->failed = true;
    return false;
  }
  b->s = s;
  b->cap = cap;
  b->s[b->len] = '\0';
  return true;
}

void aci_strbuf_add(aci_strbuf *b, const char *s, size_t n) {
  if (!aci_strbuf_reserve(b, n)) return;
  if (n > 0) memcpy(b->s + b->len, s, n);
  b->len += n;
  b->s[b->len] = '\0';
}

void aci_strbuf_puts(aci_strbuf *b, const char *s) { aci_strbuf_add(b, s, strlen(s)); }

void aci_strbuf_putc(aci_strbuf *b, char c) { aci_strbuf_add(b, &c, 1); }

void aci_strbuf_printf(aci_strbuf *b, const char *fmt, ...) {
  va_list ap, again;
  va_start(ap, fmt);
  va_copy(again, ap);
  int n = vsnprintf(NULL, 0, fmt, ap);
  va_end(ap);
  if (n < 0) {
    b->failed = true;
  } else if (aci_strbuf_reserve(b, (size_t)n)) {
    vsnprintf(b->s + b->len, (size_t)n + 1, fmt, again);
    b->len += (size_t)n;
  }
  va_end(again);
}

char *aci_strbuf_take(aci_strbuf *b, size_t *len) {
  if (!aci_strbuf_reserve(b, 0)) return NULL;
  char *s = b->s;
  if (len != NULL) *len = b->len;
  *b = (aci_strbuf){0};
  return s;
}
