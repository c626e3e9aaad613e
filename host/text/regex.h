/* Regular expressions of tokenizer files, in time linear in the text: an automaton built while it
 * runs, no backtracking.
 *
 * The syntax is the part of Oniguruma's (Ruby's) that automata can decide: literals, classes with
 * nesting and intersection, \p{...} (categories and the common scripts of Unicode 16), [:names:],
 * groups, alternatives, greedy, lazy, possessive and counted repetition, atomic groups, (?i), (?m)
 * and (?x), anchors, word boundaries, \R, and lookahead and lookbehind of any kind (at most eight
 * over more than one character). The first alternative wins, as in Perl. Everything else (back
 * references, \X, \K, an atomic group around a loop whose rounds match in several ways) is an error
 * that names the unsupported part.
 *
 * A text on which many matches each look far ahead could still take quadratic time: aci_regex_begin
 * sets a budget in proportion to the text, and running out of it is an error. Used by patterns
 * (pattern.h). */
#ifndef ACI_REGEX_H
#define ACI_REGEX_H
#include "accel/base.h"

typedef struct aci_regex aci_regex; /* the program: does not change */
/* one thread's part of the lazily built automaton */
typedef struct aci_regex_cache aci_regex_cache;

enum { ACI_REGEX_BYTES = 1 << 16 };
/* PARSE: names the fault or the unsupported part, and its byte. OOM. */
ac_status aci_regex_new(const char *pattern, size_t n, aci_regex **out, ac_err *e);
void aci_regex_free(aci_regex *r);
aci_regex_cache *aci_regex_cache_new(const aci_regex *r); /* NULL: no memory */
void aci_regex_cache_free(aci_regex_cache *c);

/* Before the first find in a text of n bytes: up to the next call the finds are in that text. */
void aci_regex_begin(aci_regex_cache *c, size_t n);
/* The leftmost match at or after `from` (valid UTF-8). Lookbehind sees the text before `from`.
 * *found: whether there is a match. UNSUPPORTED: the budget ran out. OOM. */
ac_status aci_regex_find(aci_regex_cache *c, const char *s, size_t n, size_t from, size_t *begin,
                         size_t *end, bool *found, ac_err *e);

#endif
