/* What the two halves of the parser of regular expressions share: regex_parse.c and regex_class.c. */
#ifndef ACI_REGEX_PARSE_H
#define ACI_REGEX_PARSE_H
#include <string.h>

#include "text/regex_impl.h"
#include "text/unicode.h"

typedef struct aci_rx_parser {
  const char *s;
  size_t n, at;
  aci_rx_tree *t;
  bool ignore_case, dot_all;
  int depth;
  ac_err *e;
} aci_rx_parser;

#define BAD(p, what) AC_FAIL((p)->e, PARSE, "regular expression, byte %zu: %s", (p)->at, (what))
#define NO_MEMORY(p) AC_FAIL((p)->e, OOM, "no memory for a regular expression")
#define ADD(p, expr)                  \
  do {                                \
    if (!(expr)) return NO_MEMORY(p); \
  } while (0)

static inline bool aci_rx_more(const aci_rx_parser *p) { return p->at < p->n; }
static inline char aci_rx_peek(const aci_rx_parser *p) { return p->at < p->n ? p->s[p->at] : 0; }
static inline bool aci_rx_starts(const aci_rx_parser *p, const char *with) {
  const size_t k = strlen(with);
  return p->n - p->at >= k && memcmp(p->s + p->at, with, k) == 0;
}
static inline bool aci_rx_take(aci_rx_parser *p, const char *with) {
  if (!aci_rx_starts(p, with)) return false;
  p->at += strlen(with);
  return true;
}
static inline uint32_t aci_rx_next_char(aci_rx_parser *p) {
  const char *s = p->s + p->at;
  const uint32_t c = aci_utf8_next(&s);
  p->at = (size_t)(s - p->s);
  return c;
}

/* An escape that stands for one character, in *c, or for a set, which is added to s (*is_set); p->at is behind the backslash. */
ac_status aci_rx_escape(aci_rx_parser *p, aci_rx_set *s, uint32_t *c, bool *is_set);
/* A class; p->at is at "[". */
ac_status aci_rx_class(aci_rx_parser *p, aci_rx_set *out);

#endif
