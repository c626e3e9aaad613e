/* Declarations shared by the parts of the parser of regular expressions: regex_parse.c,
 * regex_class.c, regex_look.c, regex_fold.c, regex_atomic.c. */
#ifndef ACI_REGEX_PARSE_H
#define ACI_REGEX_PARSE_H
#include <string.h>

#include "text/regex_impl.h"
#include "text/unicode.h"

typedef struct aci_rx_parser {
  const char *s;
  size_t n, at;
  aci_rx_tree *t;
  bool ignore_case, dot_all, extended, in_behind;
  int depth;
  uint64_t work;
  ac_err *e;
} aci_rx_parser;

#define BAD(p, what) AC_FAIL((p)->e, PARSE, "regular expression, byte %zu: %s", (p)->at, (what))
#define NO_MEMORY(p) AC_FAIL((p)->e, OOM, "no memory for a regular expression")
/* Before n ranges of sets are handled: a short pattern may name large sets very often. */
#define SPEND(p, k)                                              \
  do {                                                           \
    if (((p)->work += (k)) > ACI_RX_WORK)                        \
      return BAD(p, "its sets of characters are too much work"); \
  } while (0)
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

ac_status aci_rx_node_new(aci_rx_parser *p, aci_rx_kind kind, uint32_t child, uint32_t *out);
/* The number of a set with these contents, which it takes. */
ac_status aci_rx_intern(aci_rx_parser *p, aci_rx_set *s, uint16_t *out);
/* A character of the set. Takes over the set. Includes other cases if case is ignored. */
ac_status aci_rx_set_node(aci_rx_parser *p, aci_rx_set *s, uint32_t *out);

/* An escape. For one character: in *c. For a set: added to s (*is_set). p->at is after the
 * backslash. inside: of a class */
ac_status aci_rx_escape(aci_rx_parser *p, aci_rx_set *s, uint32_t *c, bool *is_set, bool inside);
/* A class. p->at is at "[". */
ac_status aci_rx_class(aci_rx_parser *p, aci_rx_set *out);

void aci_rx_skip_blanks(aci_rx_parser *p);

/* (?i): a text at p->at that folds to one character, or one that folds to several. *out 0: there is
 * none. */
ac_status aci_rx_fold_text(aci_rx_parser *p, uint32_t *out);
/* The texts that characters of a class fold to, as a list of nodes. 0: none. */
ac_status aci_rx_fold_class(aci_rx_parser *p, const aci_rx_set *s, uint32_t *out);

/* Lookaround over x, which becomes a part of it. */
ac_status aci_rx_look_around(aci_rx_parser *p, uint32_t x, bool behind, bool negated,
                             uint32_t *out);
/* The character before (else: next) is of the set (NULL: of none), or there is none and edge. */
ac_status aci_rx_edge(aci_rx_parser *p, bool behind, const aci_rx_set *set, bool edge,
                      uint32_t *out);
ac_status aci_rx_word_edge(aci_rx_parser *p, bool inside, uint32_t *out); /* \b, inside: \B */
ac_status aci_rx_line_begin(aci_rx_parser *p, uint32_t *out);             /* ^ */
ac_status aci_rx_line_end(aci_rx_parser *p, uint32_t *out);               /* $ */
ac_status aci_rx_text_end(aci_rx_parser *p, uint32_t *out);               /* \Z */
ac_status aci_rx_line_break(aci_rx_parser *p, uint32_t *out);             /* \R */
/* (?>x), made of copies of it. */
ac_status aci_rx_atomic(aci_rx_parser *p, uint32_t x, uint32_t *out);

#endif
