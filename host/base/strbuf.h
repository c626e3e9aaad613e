/* A growable text buffer. Appends never fail on their own: the first lack of memory is kept in
 * `failed` and asked for once, at the end. Used by writers (JSON, printing, messages). */
#ifndef ACI_STRBUF_H
#define ACI_STRBUF_H
#include <stdbool.h>
#include <stddef.h>

#include "accel/base.h"

typedef struct aci_strbuf {
  char *s; /* NUL-terminated once anything was appended. NULL before */
  size_t len, cap;
  bool failed;
} aci_strbuf; /* all zero: empty */

void aci_strbuf_fini(aci_strbuf *b);
/* Room for n more bytes and the NUL. False (and failed) without memory. */
bool aci_strbuf_reserve(aci_strbuf *b, size_t n);
void aci_strbuf_add(aci_strbuf *b, const char *s, size_t n);
void aci_strbuf_puts(aci_strbuf *b, const char *s);
void aci_strbuf_putc(aci_strbuf *b, char c);
void aci_strbuf_printf(aci_strbuf *b, const char *fmt, ...) AC_PRINTF(2, 3);
/* Hands the text over (free() it). "" when empty, NULL when an append failed. The buffer is empty
 * after. */
char *aci_strbuf_take(aci_strbuf *b, size_t *len);

#endif
