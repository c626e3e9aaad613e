/* Regular expressions: atomic groups, (?>...) and possessive repetition, without backtracking that
 * could be cut. An atomic group matches in the first way that succeeds, so lookahead allows each
 * later way only if all earlier ways fail:
 *
 *   (?>A|B)    is A|(?!A)B        with the rest of the group as a part of A and of B
 *   (?>A*B)    is A*(?!A+B)B      if A matches in at most one way: a set, a text of fixed length,
 *              an atomic group
 *   (?>A*?B)   is (?:(?!B)A)*B
 *
 * The text after the group plays no part. Called by the parser. */
#include <stdlib.h>

#include "text/regex_parse.h"

/* The rest of a group: a node, the nodes after it (unless it is alone), and the rest of the
 * enclosing group. */
typedef struct rest {
  uint32_t x;
  bool alone;
  const struct rest *up;
} rest;

/* A sequence that is being made. */
typedef struct list {
  uint32_t first, last;
} list;

static void push(aci_rx_parser *p, list *l, uint32_t x) {
  p->t->node[x].next = 0;
  if (l->last == 0) l->first = x;
  else p->t->node[l->last].next = x;
  l->last = x;
}

/* ---- properties of nodes ---- */
enum { MANY = 1 << 24 };

/* Characters of every match. -1 if matches differ in length. */
static int32_t length(const aci_rx_tree *t, uint32_t x) {
  const aci_rx_node *n = &t->node[x];
  int32_t sum = 0, k;
  switch (n->kind) {
    case ACI_RX_SET: return 1;
    case ACI_RX_CAT:
      for (uint32_t c = n->child; c != 0; c = t->node[c].next) {
        if ((k = length(t, c)) < 0) return -1;
        sum = sum + k < MANY ? sum + k : MANY;
      }
      return sum == MANY ? -1 : sum;
    case ACI_RX_ALT:
      sum = length(t, n->child);
      for (uint32_t c = t->node[n->child].next; sum >= 0 && c != 0; c = t->node[c].next)
        if (length(t, c) != sum) return -1;
      return sum;
    case ACI_RX_REPEAT_N:
      k = length(t, n->child);
      if (k == 0) return 0;
      return k < 0 || n->min != n->max || k > MANY / (n->min + 1) ? -1 : k * n->min;
    default: return 0;
  }
}

/* Does it match in one way at most? */
static bool is_once(const aci_rx_tree *t, uint32_t x) {
  const aci_rx_node *n = &t->node[x];
  if (n->once || length(t, x) >= 0) return true;
  if (n->kind == ACI_RX_REPEAT_N) return n->min == n->max && is_once(t, n->child);
  if (n->kind != ACI_RX_CAT) return false;
  for (uint32_t c = n->child; c != 0; c = t->node[c].next)
    if (!is_once(t, c)) return false;
  return true;
}

static bool may_be_empty(const aci_rx_tree *t, uint32_t x) {
  const aci_rx_node *n = &t->node[x];
  switch (n->kind) {
    case ACI_RX_SET: return false;
    case ACI_RX_CAT:
      for (uint32_t c = n->child; c != 0; c = t->node[c].next)
        if (!may_be_empty(t, c)) return false;
      return true;
    case ACI_RX_ALT:
      for (uint32_t c = n->child; c != 0; c = t->node[c].next)
        if (may_be_empty(t, c)) return true;
      return false;
    case ACI_RX_REPEAT_N: return n->min == 0 || may_be_empty(t, n->child);
    default: return true;
  }
}

/* ---- copies ---- */
static ac_status copy(aci_rx_parser *p, uint32_t x, uint32_t *out) {
  const aci_rx_node was = p->t->node[x];
  list l = {0};
  for (uint32_t c = was.child, one; c != 0; c = p->t->node[c].next) {
    AC_TRY(copy(p, c, &one));
    push(p, &l, one);
  }
  AC_TRY(aci_rx_node_new(p, (aci_rx_kind)was.kind, 0, out));
  p->t->node[*out] = was;
  p->t->node[*out].child = l.first;
  p->t->node[*out].next = 0;
  return AC_OK;
}

static ac_status put(aci_rx_parser *p, list *l, uint32_t x) {
  uint32_t one;
  AC_TRY(copy(p, x, &one));
  push(p, l, one);
  return AC_OK;
}

/* x from min to max times */
static ac_status put_repeat(aci_rx_parser *p, list *l, uint32_t x, int32_t min, int32_t max) {
  uint32_t inner, outer;
  if (max == 0) return AC_OK;
  AC_TRY(copy(p, x, &inner));
  AC_TRY(aci_rx_node_new(p, ACI_RX_REPEAT_N, inner, &outer));
  p->t->node[outer].min = min;
  p->t->node[outer].max = max;
  push(p, l, outer);
  return AC_OK;
}

static const rest *behind(const aci_rx_parser *p, const rest *r, rest *to) {
  const uint32_t next = r->alone ? 0 : p->t->node[r->x].next;
  if (next == 0) return r->up;
  *to = (rest){next, false, r->up};
  return to;
}

static ac_status put_rest(aci_rx_parser *p, list *l, const rest *r) {
  for (rest at; r != NULL; r = behind(p, r, &at)) AC_TRY(put(p, l, r->x));
  return AC_OK;
}

static ac_status sequence_of(aci_rx_parser *p, const list *l, uint32_t *out) {
  return aci_rx_node_new(p, l->first == 0 ? ACI_RX_EMPTY : ACI_RX_CAT, l->first, out);
}

/* (?!x, from min to max times, then the rest) */
static ac_status put_unless(aci_rx_parser *p, list *l, uint32_t x, int32_t min, int32_t max,
                            const rest *r) {
  list inner = {0};
  uint32_t whole, look;
  AC_TRY(put_repeat(p, &inner, x, min, max));
  AC_TRY(put_rest(p, &inner, r));
  AC_TRY(sequence_of(p, &inner, &whole));
  AC_TRY(aci_rx_look_around(p, whole, false, true, &look));
  push(p, l, look);
  return AC_OK;
}

static ac_status put_atomic(aci_rx_parser *p, list *l, const rest *r);

/* ---- ways, each tried only if all earlier ones fail ---- */
typedef struct ways {
  list all, unless;
} ways;

/* x so many times, then the rest. The last way needs no lookahead for the ways after it. */
static ac_status put_way(aci_rx_parser *p, ways *w, uint32_t x, int32_t times, const rest *r,
                         bool last) {
  list way = {0};
  uint32_t one;
  for (uint32_t c = w->unless.first; c != 0; c = p->t->node[c].next) AC_TRY(put(p, &way, c));
  if (is_once(p->t, x)) {
    AC_TRY(put_repeat(p, &way, x, times, times));
    AC_TRY(put_atomic(p, &way, r));
  } else {
    const rest here = {x, true, r};
    AC_TRY(put_atomic(p, &way, &here));
  }
  AC_TRY(sequence_of(p, &way, &one));
  push(p, &w->all, one);
  return last ? AC_OK : put_unless(p, &w->unless, x, times, times, r);
}

static ac_status put_ways(aci_rx_parser *p, list *l, const ways *w) {
  uint32_t all;
  AC_TRY(aci_rx_node_new(p, ACI_RX_ALT, w->all.first, &all));
  push(p, l, all);
  return AC_OK;
}

/* At most `most` times x, with nothing after it: so many times, or fewer if no further x
 * follows. */
static ac_status put_most(aci_rx_parser *p, list *l, uint32_t x, int32_t most) {
  ways w = {0};
  list fewer = {0};
  uint32_t one;
  AC_TRY(put_way(p, &w, x, most, NULL, true));
  AC_TRY(put_repeat(p, &fewer, x, 0, most - 1));
  AC_TRY(put_unless(p, &fewer, x, 1, 1, NULL));
  AC_TRY(sequence_of(p, &fewer, &one));
  push(p, &w.all, one);
  return put_ways(p, l, &w);
}

/* Lazy repetition continues only if the rest does not match here. */
static ac_status put_lazy(aci_rx_parser *p, list *l, uint32_t x, const rest *r) {
  list inner = {0};
  uint32_t one;
  AC_TRY(put_unless(p, &inner, x, 0, 0, r));
  AC_TRY(put(p, &inner, x));
  AC_TRY(sequence_of(p, &inner, &one));
  return put_repeat(p, l, one, 0, -1);
}

/* *done: the rest is included in the nodes put */
static ac_status put_repeated(aci_rx_parser *p, list *l, const aci_rx_node *n, const rest *r,
                              bool *done) {
  const uint32_t x = n->child;
  const bool lazy = n->greed == ACI_RX_LAZY;
  const int32_t more = n->max < 0 ? -1 : n->max - n->min;
  *done = false;
  if (!is_once(p->t, x) || may_be_empty(p->t, x))
    return BAD(
        p, "an atomic group or possessive repetition repeats what matches in more than one way");
  AC_TRY(put_repeat(p, l, x, n->min, n->min));
  if (more == 0 || (lazy && r == NULL)) return AC_OK;
  if (more < 0 && lazy) return put_lazy(p, l, x, r);
  if (more < 0) {
    AC_TRY(put_repeat(p, l, x, 0, -1));
    return put_unless(p, l, x, 1, r == NULL ? 1 : -1, r);
  }
  *done = true;
  if (r == NULL) return put_most(p, l, x, more);
  ways w = {0};
  for (int32_t k = 0; k <= more; k++) AC_TRY(put_way(p, &w, x, lazy ? k : more - k, r, k == more));
  return put_ways(p, l, &w);
}

static ac_status put_atomic(aci_rx_parser *p, list *l, const rest *r) {
  rest at, inner;
  for (; r != NULL; r = behind(p, r, &at)) {
    const aci_rx_node n = p->t->node[r->x];
    if (is_once(p->t, r->x)) {
      AC_TRY(put(p, l, r->x));
      continue;
    }
    rest after;
    const rest *const left = behind(p, r, &after);
    if (n.kind == ACI_RX_CAT) {
      inner = (rest){n.child, false, left};
      return put_atomic(p, l, &inner);
    }
    if (n.kind == ACI_RX_REPEAT_N) {
      bool done;
      AC_TRY(put_repeated(p, l, &n, left, &done));
      if (done) return AC_OK;
      continue;
    }
    ways w = {0};
    for (uint32_t c = n.child; c != 0; c = p->t->node[c].next)
      AC_TRY(put_way(p, &w, c, 1, left, p->t->node[c].next == 0));
    return put_ways(p, l, &w);
  }
  return AC_OK;
}

ac_status aci_rx_atomic(aci_rx_parser *p, uint32_t x, uint32_t *out) {
  const rest whole = {x, true, NULL};
  list l = {0};
  AC_TRY(put_atomic(p, &l, &whole));
  AC_TRY(sequence_of(p, &l, out));
  p->t->node[*out].once = true;
  return AC_OK;
}
