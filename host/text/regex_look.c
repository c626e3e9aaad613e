/* Regular expressions: lookaround and its translation. Over one character it is a test of the
 * classes on both sides of a position. Over more it becomes an automaton of its own (regex_run.c).
 * Called by the parser. */
#include <stdlib.h>

#include "text/regex_parse.h"

/* Adds the possible characters of x at its near edge. *one is false when x is longer or may be
 * empty. */
static ac_status single(aci_rx_parser *p, uint32_t x, bool behind, aci_rx_set *s, bool *one) {
  const aci_rx_node *n = &p->t->node[x];
  *one = true;
  switch (n->kind) {
    case ACI_RX_AHEAD:
    case ACI_RX_BEHIND: /* the end of the text, in (?=\s|\z) */
      *one = (n->kind == ACI_RX_BEHIND) == behind;
      if (!*one) return AC_OK; /* fallthrough */
    case ACI_RX_SET: ADD(p, aci_rx_unite(s, &p->t->set[n->set])); return AC_OK;
    case ACI_RX_ALT:
      for (uint32_t c = n->child; *one && c != 0; c = p->t->node[c].next)
        AC_TRY(single(p, c, behind, s, one));
      return AC_OK;
    case ACI_RX_CAT:
      *one = n->child != 0 && p->t->node[n->child].next == 0;
      return *one ? single(p, n->child, behind, s, one) : AC_OK;
    case ACI_RX_REPEAT_N: /* one or more begin like one */
      *one = n->min == 1;
      return *one ? single(p, n->child, behind, s, one) : AC_OK;
    default: *one = false; return AC_OK;
  }
}

ac_status aci_rx_edge(aci_rx_parser *p, bool behind, const aci_rx_set *set, bool edge,
                      uint32_t *out) {
  aci_rx_set s = {0};
  if (set != NULL && !aci_rx_unite(&s, set)) return NO_MEMORY(p);
  s.edge = edge;
  uint16_t number;
  AC_TRY(aci_rx_intern(p, &s, &number));
  AC_TRY(aci_rx_node_new(p, behind ? ACI_RX_BEHIND : ACI_RX_AHEAD, 0, out));
  p->t->node[*out].set = number;
  return AC_OK;
}

/* Turns x round, so that reading from right to left it matches the same texts. */
static void turn(aci_rx_tree *t, uint32_t x) {
  aci_rx_node *n = &t->node[x];
  for (uint32_t c = n->child; c != 0; c = t->node[c].next) turn(t, c);
  if (n->kind == ACI_RX_AHEAD) n->kind = ACI_RX_BEHIND;
  else if (n->kind == ACI_RX_BEHIND) n->kind = ACI_RX_AHEAD;
  else if (n->kind == ACI_RX_CAT) {
    uint32_t last = 0;
    for (uint32_t c = n->child, next; c != 0; c = next) {
      next = t->node[c].next;
      t->node[c].next = last;
      last = c;
    }
    n->child = last;
  }
}

static ac_status automaton(aci_rx_parser *p, uint32_t x, bool behind, bool negated, uint32_t *out) {
  aci_rx_tree *t = p->t;
  if (t->n_look == ACI_RX_LOOKS)
    return BAD(p, "more than 8 lookarounds (atomic groups need some) over more than one character");
  if (t->n_look == 0) {
    aci_rx_set any = {0};
    ADD(p, aci_rx_add(&any, 0, ACI_UNI_LAST));
    AC_TRY(aci_rx_intern(p, &any, &t->any));
  }
  if (!behind) turn(t, x);
  t->look[t->n_look] = (aci_rx_look){x, !behind, negated};
  AC_TRY(aci_rx_node_new(p, ACI_RX_LOOK, 0, out));
  t->node[*out].set = (uint16_t)t->n_look++;
  return AC_OK;
}

ac_status aci_rx_look_around(aci_rx_parser *p, uint32_t x, bool behind, bool negated,
                             uint32_t *out) {
  aci_rx_set s = {0};
  bool one;
  ac_status st = single(p, x, behind, &s, &one);
  if (st == AC_OK && !one) st = automaton(p, x, behind, negated, out);
  else if (st == AC_OK) {
    const bool edge = s.edge != negated;
    if (negated && !aci_rx_complement(&s)) st = NO_MEMORY(p);
    if (st == AC_OK) st = aci_rx_edge(p, behind, &s, edge, out);
  }
  free(s.r);
  return st;
}

/* ---- anchors ---- */

/* a then b, or c then d */
static ac_status either(aci_rx_parser *p, uint32_t a, uint32_t b, uint32_t c, uint32_t d,
                        uint32_t *out) {
  uint32_t one, two;
  p->t->node[a].next = b;
  p->t->node[c].next = d;
  AC_TRY(aci_rx_node_new(p, ACI_RX_CAT, a, &one));
  AC_TRY(aci_rx_node_new(p, ACI_RX_CAT, c, &two));
  p->t->node[one].next = two;
  return aci_rx_node_new(p, ACI_RX_ALT, one, out);
}

/* \b: one side is a word, the other is not. */
ac_status aci_rx_word_edge(aci_rx_parser *p, bool inside, uint32_t *out) {
  aci_rx_set word = {0}, rest = {0};
  uint32_t a, b, c, d;
  ac_status st =
      !aci_rx_add_word(&word, true) || !aci_rx_unite(&rest, &word) || !aci_rx_complement(&rest)
          ? NO_MEMORY(p)
          : AC_OK;
  if (st == AC_OK) st = aci_rx_edge(p, true, &word, false, &a);
  if (st == AC_OK) st = aci_rx_edge(p, false, inside ? &word : &rest, !inside, &b);
  if (st == AC_OK) st = aci_rx_edge(p, true, &rest, true, &c);
  if (st == AC_OK) st = aci_rx_edge(p, false, inside ? &rest : &word, inside, &d);
  free(word.r);
  free(rest.r);
  AC_TRY(st);
  return either(p, a, b, c, d, out);
}

/* ^: the beginning of the text, or after a line's end that is not the text's. */
ac_status aci_rx_line_begin(aci_rx_parser *p, uint32_t *out) {
  aci_rx_set end = {0}, any = {0};
  uint32_t a, b, c, d;
  ac_status st =
      aci_rx_add(&end, '\n', '\n') && aci_rx_add(&any, 0, ACI_UNI_LAST) ? AC_OK : NO_MEMORY(p);
  if (st == AC_OK) st = aci_rx_edge(p, true, NULL, true, &a);
  if (st == AC_OK) st = aci_rx_node_new(p, ACI_RX_EMPTY, 0, &b);
  if (st == AC_OK) st = aci_rx_edge(p, true, &end, false, &c);
  if (st == AC_OK) st = aci_rx_edge(p, false, &any, false, &d);
  free(end.r);
  free(any.r);
  AC_TRY(st);
  return either(p, a, b, c, d, out);
}

/* $: the end of a line, or of the text. */
ac_status aci_rx_line_end(aci_rx_parser *p, uint32_t *out) {
  aci_rx_set end = {0};
  ADD(p, aci_rx_add(&end, '\n', '\n'));
  const ac_status st = aci_rx_edge(p, false, &end, true, out);
  free(end.r);
  return st;
}

/* \Z: the end of the text, or the line's end before it. */
ac_status aci_rx_text_end(aci_rx_parser *p, uint32_t *out) {
  aci_rx_set end = {0};
  uint32_t one, last, whole, look;
  ADD(p, aci_rx_add(&end, '\n', '\n'));
  AC_TRY(aci_rx_set_node(p, &end, &one));
  AC_TRY(aci_rx_edge(p, false, NULL, true, &last));
  p->t->node[one].next = last;
  AC_TRY(aci_rx_node_new(p, ACI_RX_CAT, one, &whole));
  AC_TRY(aci_rx_look_around(p, whole, false, false, &look));
  AC_TRY(aci_rx_edge(p, false, NULL, true, &last));
  p->t->node[last].next = look;
  return aci_rx_node_new(p, ACI_RX_ALT, last, out);
}

/* \R: an end of a line, of which "\r\n" is one. */
ac_status aci_rx_line_break(aci_rx_parser *p, uint32_t *out) {
  aci_rx_set cr = {0}, lf = {0}, rest = {0}, alone = {0}, not_lf = {0};
  uint32_t a, b, c, d, e;
  ac_status st = AC_OK;
  if (!aci_rx_add(&cr, '\r', '\r') || !aci_rx_add(&alone, '\r', '\r') ||
      !aci_rx_add(&lf, '\n', '\n') || !aci_rx_add(&not_lf, '\n', '\n') ||
      !aci_rx_complement(&not_lf) || !aci_rx_add(&rest, '\n', '\f') ||
      !aci_rx_add(&rest, 0x85, 0x85) || !aci_rx_add(&rest, 0x2028, 0x2029))
    st = NO_MEMORY(p);
  if (st == AC_OK) st = aci_rx_edge(p, false, &not_lf, true, &d);
  free(not_lf.r);
  aci_rx_set *const sets[] = {&cr, &lf, &alone, &rest};
  uint32_t *const nodes[] = {&a, &b, &c, &e};
  for (int i = 0; i < 4; i++) {
    if (st == AC_OK) st = aci_rx_set_node(p, sets[i], nodes[i]);
    else free(sets[i]->r);
  }
  AC_TRY(st);
  AC_TRY(either(p, a, b, c, d, out));
  p->t->node[p->t->node[p->t->node[*out].child].next].next = e;
  p->t->node[*out].once = true;
  return AC_OK;
}
