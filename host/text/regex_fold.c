/* Regular expressions, (?i): characters that are several when case is ignored, as the sharp s of
 * German is "ss". If a pattern contains one of them, it matches the several characters as well. If
 * it contains the several next to each other, they match the one: the longest such text from the
 * left on counts. Not in lookbehind, and not in classes that are negated. Called by the parser. */
#include <stdlib.h>

#include "text/regex_parse.h"

enum { LONGEST = 3 };

static bool same(const uint32_t a[LONGEST], const uint32_t b[LONGEST]) {
  return memcmp(a, b, LONGEST * sizeof *a) == 0;
}

/* The set of all characters that fold to `to`. */
static bool ones(aci_rx_set *s, const uint32_t to[LONGEST]) {
  uint32_t c, other[LONGEST];
  for (size_t i = 0; aci_uni_full_fold(i, &c, other) > 0; i++)
    if (same(to, other) && !aci_rx_add(s, c, c)) return false;
  return true;
}

static ac_status one_of(aci_rx_parser *p, uint32_t c, uint32_t *out) {
  aci_rx_set s = {0};
  ADD(p, aci_rx_add(&s, c, c));
  return aci_rx_set_node(p, &s, out);
}

static ac_status several(aci_rx_parser *p, const uint32_t to[LONGEST], uint32_t *out) {
  uint32_t first = 0, last = 0, one;
  for (int k = 0; k < LONGEST && to[k] != 0; k++) {
    AC_TRY(one_of(p, to[k], &one));
    if (last == 0) first = one;
    else p->t->node[last].next = one;
    last = one;
  }
  return aci_rx_node_new(p, ACI_RX_CAT, first, out);
}

/* One that folds to `to`, or those. */
static ac_status either(aci_rx_parser *p, const uint32_t to[LONGEST], uint32_t *out) {
  aci_rx_set s = {0};
  uint32_t one, more;
  if (!ones(&s, to)) {
    free(s.r);
    return NO_MEMORY(p);
  }
  AC_TRY(aci_rx_set_node(p, &s, &one));
  AC_TRY(several(p, to, &more));
  p->t->node[one].next = more;
  return aci_rx_node_new(p, ACI_RX_ALT, one, out);
}

/* The character that stands for itself at p->at. Moves p->at past it. */
static bool literal(aci_rx_parser *p, uint32_t *c) {
  aci_rx_skip_blanks(p);
  if (!aci_rx_more(p) ||
      (aci_rx_peek(p) != '\\' && strchr(".[](){}*+?|^$", aci_rx_peek(p)) != NULL))
    return false;
  if (!aci_rx_take(p, "\\")) return *c = aci_rx_next_char(p), true;
  if (aci_rx_peek(p) != 'u' && aci_rx_peek(p) != 'x') return false;
  aci_rx_set none = {0};
  bool is_set = false;
  return aci_rx_escape(p, &none, c, &is_set, false) == AC_OK;
}

static bool is_repeated(aci_rx_parser *p) {
  aci_rx_skip_blanks(p);
  return aci_rx_more(p) && strchr("*+?{", aci_rx_peek(p)) != NULL;
}

ac_status aci_rx_fold_text(aci_rx_parser *p, uint32_t *out) {
  ac_err unseen;
  aci_rx_parser ahead = *p;
  uint32_t text[LONGEST] = {0}, c, to[LONGEST];
  size_t at[LONGEST] = {0};
  bool repeated[LONGEST] = {0};
  int n = 0;
  *out = 0;
  if (!p->ignore_case || p->in_behind) return AC_OK;
  ahead.e = &unseen; /* errors there are reported when the parser reaches them */
  for (; n < LONGEST && literal(&ahead, &c); n++) {
    text[n] = c;
    at[n] = ahead.at;
    repeated[n] = is_repeated(&ahead);
  }
  for (int k = n; k > 1; k--) {
    if (repeated[k - 1] || repeated[0] || (k == 3 && repeated[1])) continue;
    for (size_t i = 0; aci_uni_full_fold(i, &c, to) > 0; i++) {
      bool all = (to[2] != 0 ? 3 : 2) == k;
      for (int j = 0; all && j < k; j++) all = aci_uni_fold(text[j]) == to[j];
      if (!all) continue;
      p->at = at[k - 1];
      return either(p, to, out);
    }
  }
  for (size_t i = 0; n > 0 && aci_uni_full_fold(i, &c, to) > 0; i++) {
    if (c != text[0]) continue;
    p->at = at[0];
    return either(p, to, out);
  }
  return AC_OK;
}

ac_status aci_rx_fold_class(aci_rx_parser *p, const aci_rx_set *s, uint32_t *out) {
  uint32_t c, to[LONGEST], was[LONGEST] = {0}, first = 0, last = 0, one;
  *out = 0;
  if (!p->ignore_case || p->in_behind) return AC_OK;
  for (size_t i = 0; aci_uni_full_fold(i, &c, to) > 0; i++) {
    if (!aci_rx_has(s, c) || same(to, was)) continue;
    memcpy(was, to, sizeof was);
    AC_TRY(several(p, to, &one));
    if (last == 0) first = one;
    else p->t->node[last].next = one;
    last = one;
  }
  *out = first;
  return AC_OK;
}
