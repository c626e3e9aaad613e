/* Regular expressions: from the tree to a program over classes of characters, that is, sets of code points that no part of
 * the pattern tells apart. Called by what reads tokenizers. */
#include <stdlib.h>
#include <string.h>

#include "text/regex_impl.h"
#include "text/unicode.h"

/* ---- possessive repetition ---- */

/* With which characters x can begin. *nullable: it may be empty; *looks: it begins with lookaround. */
static ac_status firsts(const aci_rx_tree *t, uint32_t x, aci_rx_set *s, bool *nullable, bool *looks,
                        uint32_t *steps, ac_err *e) {
  const aci_rx_node *n = &t->node[x];
  bool one;
  *nullable = false;
  if (++*steps > ACI_RX_STEPS)
    return AC_FAIL(e, PARSE, "regular expression: too large for possessive repetition");
  switch (n->kind) {
    case ACI_RX_SET:
      return aci_rx_unite(s, &t->set[n->set]) ? AC_OK : AC_FAIL(e, OOM, "no memory for a regular expression");
    case ACI_RX_CAT:
      *nullable = true;
      for (uint32_t c = n->child; c != 0 && *nullable; c = t->node[c].next)
        AC_TRY(firsts(t, c, s, nullable, looks, steps, e));
      return AC_OK;
    case ACI_RX_ALT:
      for (uint32_t c = n->child; c != 0; c = t->node[c].next) {
        AC_TRY(firsts(t, c, s, &one, looks, steps, e));
        *nullable = *nullable || one;
      }
      return AC_OK;
    case ACI_RX_REPEAT_N:
      AC_TRY(firsts(t, n->child, s, &one, looks, steps, e));
      *nullable = one || n->min == 0;
      return AC_OK;
    case ACI_RX_AHEAD:
    case ACI_RX_BEHIND: *looks = true; /* fallthrough */
    default: *nullable = true; return AC_OK;
  }
}

/* What may follow a part of the pattern. */
typedef struct follow {
  aci_rx_set s;
  bool nullable, looks;
} follow;

static ac_status settle(aci_rx_tree *t, uint32_t x, const follow *f, uint32_t *steps, ac_err *e);

/* The children of a sequence: each is followed by the rest, and what follows the sequence. */
static ac_status settle_sequence(aci_rx_tree *t, uint32_t child, const follow *f, uint32_t *steps,
                                 ac_err *e) {
  for (; child != 0; child = t->node[child].next) {
    follow rest = {.nullable = true};
    ac_status st = AC_OK;
    for (uint32_t c = t->node[child].next; st == AC_OK && c != 0 && rest.nullable; c = t->node[c].next)
      st = firsts(t, c, &rest.s, &rest.nullable, &rest.looks, steps, e);
    if (st == AC_OK && rest.nullable) {
      if (!aci_rx_unite(&rest.s, &f->s)) st = AC_FAIL(e, OOM, "no memory for a regular expression");
      rest.nullable = f->nullable;
      rest.looks = rest.looks || f->looks;
    }
    if (st == AC_OK) st = settle(t, child, &rest, steps, e);
    free(rest.s.r);
    AC_TRY(st);
  }
  return AC_OK;
}

static ac_status settle(aci_rx_tree *t, uint32_t x, const follow *f, uint32_t *steps, ac_err *e) {
  aci_rx_node *n = &t->node[x];
  if (n->kind == ACI_RX_CAT) return settle_sequence(t, n->child, f, steps, e);
  if (n->kind == ACI_RX_ALT) {
    for (uint32_t c = n->child; c != 0; c = t->node[c].next) AC_TRY(settle(t, c, f, steps, e));
    return AC_OK;
  }
  if (n->kind != ACI_RX_REPEAT_N) return AC_OK;
  follow inner = {.nullable = f->nullable, .looks = f->looks};
  bool nullable;
  ac_status st = firsts(t, n->child, &inner.s, &nullable, &inner.looks, steps, e);
  if (st == AC_OK && n->greed == ACI_RX_POSSESSIVE) {
    /* giving back is of no use when nothing could begin with what is given back, or when the rest needs nothing */
    bool same = t->node[n->child].kind == ACI_RX_SET && !f->looks;
    if (same && !f->nullable) {
      aci_rx_set both = {0};
      if (!aci_rx_unite(&both, &inner.s) || !aci_rx_intersect(&both, &f->s))
        st = AC_FAIL(e, OOM, "no memory for a regular expression");
      same = both.n == 0;
      free(both.r);
    }
    if (st == AC_OK && !same)
      st = AC_FAIL(e, PARSE,
                   "regular expression, byte %u: possessive repetition is supported only where it does what "
                   "greedy repetition does",
                   n->at);
    n->greed = ACI_RX_GREEDY;
  }
  if (st == AC_OK && !aci_rx_unite(&inner.s, &f->s))
    st = AC_FAIL(e, OOM, "no memory for a regular expression");
  if (st == AC_OK) st = settle(t, n->child, &inner, steps, e);
  free(inner.s.r);
  return st;
}

ac_status aci_rx_possessive(aci_rx_tree *t, ac_err *e) {
  bool any = false;
  for (uint32_t i = 1; i < t->n; i++) any = any || t->node[i].greed == ACI_RX_POSSESSIVE;
  const follow end = {.nullable = true};
  uint32_t steps = 0;
  return any ? settle(t, t->root, &end, &steps, e) : AC_OK;
}

/* ---- code ---- */
typedef struct emitter {
  const aci_rx_tree *t;
  aci_regex *r;
  uint32_t cap, steps;
  ac_err *e;
} emitter;

static ac_status put(emitter *m, aci_rx_op op, uint32_t set, uint32_t x, uint32_t y, uint32_t *at) {
  aci_regex *r = m->r;
  if (r->n_prog == m->cap) {
    if (m->cap >= ACI_RX_PROGRAM)
      return AC_FAIL(m->e, PARSE, "regular expression: its repetitions make it too large");
    const uint32_t cap = m->cap == 0 ? 64 : m->cap * 2;
    aci_rx_inst *prog = realloc(r->prog, cap * sizeof *prog);
    if (prog == NULL) return AC_FAIL(m->e, OOM, "no memory for a regular expression");
    r->prog = prog;
    m->cap = cap;
  }
  r->prog[r->n_prog] = (aci_rx_inst){(uint8_t)op, (uint16_t)set, x, y};
  if (at != NULL) *at = r->n_prog;
  r->n_prog++;
  return AC_OK;
}

/* Code runs on into what is put next. */
static ac_status emit(emitter *m, uint32_t x);

static ac_status emit_repeat(emitter *m, const aci_rx_node *n) {
  uint32_t split, jumps = 0; /* the open exits, linked through x or y */
  const bool lazy = n->greed == ACI_RX_LAZY;
  for (int32_t i = 0; i < n->min; i++) AC_TRY(emit(m, n->child));
  if (n->max < 0) {
    AC_TRY(put(m, ACI_RX_OP_SPLIT, 0, 0, 0, &split));
    AC_TRY(emit(m, n->child));
    AC_TRY(put(m, ACI_RX_OP_JUMP, 0, split, 0, NULL));
    aci_rx_inst *s = &m->r->prog[split];
    s->x = lazy ? m->r->n_prog : split + 1;
    s->y = lazy ? split + 1 : m->r->n_prog;
    return AC_OK;
  }
  for (int32_t i = n->min; i < n->max; i++) {
    AC_TRY(put(m, ACI_RX_OP_SPLIT, 0, jumps, 0, &split));
    jumps = split + 1;
    AC_TRY(emit(m, n->child));
  }
  while (jumps != 0) {
    aci_rx_inst *s = &m->r->prog[jumps - 1];
    const uint32_t inside = jumps;
    jumps = s->x;
    s->x = lazy ? m->r->n_prog : inside;
    s->y = lazy ? inside : m->r->n_prog;
  }
  return AC_OK;
}

static ac_status emit(emitter *m, uint32_t x) {
  const aci_rx_node *n = &m->t->node[x];
  uint32_t split, jump, jumps = 0;
  if (++m->steps > ACI_RX_STEPS)
    return AC_FAIL(m->e, PARSE, "regular expression: its repetitions make it too large");
  switch (n->kind) {
    case ACI_RX_SET: return put(m, ACI_RX_OP_SET, n->set, m->r->n_prog + 1, 0, NULL);
    case ACI_RX_AHEAD: return put(m, ACI_RX_OP_AHEAD, n->set, m->r->n_prog + 1, 0, NULL);
    case ACI_RX_BEHIND: return put(m, ACI_RX_OP_BEHIND, n->set, m->r->n_prog + 1, 0, NULL);
    case ACI_RX_CAT:
      for (uint32_t c = n->child; c != 0; c = m->t->node[c].next) AC_TRY(emit(m, c));
      return AC_OK;
    case ACI_RX_ALT:
      for (uint32_t c = n->child; c != 0; c = m->t->node[c].next) {
        if (m->t->node[c].next == 0) {
          AC_TRY(emit(m, c));
          break;
        }
        AC_TRY(put(m, ACI_RX_OP_SPLIT, 0, m->r->n_prog + 1, 0, &split));
        AC_TRY(emit(m, c));
        AC_TRY(put(m, ACI_RX_OP_JUMP, 0, jumps, 0, &jump));
        jumps = jump + 1;
        m->r->prog[split].y = m->r->n_prog;
      }
      while (jumps != 0) {
        aci_rx_inst *j = &m->r->prog[jumps - 1];
        jumps = j->x;
        j->x = m->r->n_prog;
      }
      return AC_OK;
    case ACI_RX_REPEAT_N: return emit_repeat(m, n);
    default: return AC_OK;
  }
}

/* ---- classes ---- */
typedef struct event {
  uint32_t at, set; /* membership of the set changes at this code point */
} event;

static int by_place(const void *a, const void *b) {
  const event *x = a, *y = b;
  return x->at < y->at ? -1 : x->at > y->at;
}

/* Finds or adds the class with this membership. words: of 64 sets each. */
static int class_number(uint64_t *members, uint32_t *n, const uint64_t *now, uint32_t words) {
  for (uint32_t i = 0; i < *n; i++)
    if (memcmp(members + (size_t)i * words, now, words * sizeof *now) == 0) return (int)i;
  if (*n == ACI_RX_CLASSES) return -1;
  memcpy(members + (size_t)*n * words, now, words * sizeof *now);
  return (int)(*n)++;
}

/* Fills [first, last] of the map from code points to classes; pages come in order. */
typedef struct mapper {
  aci_regex *r;
  uint8_t page[256];
  uint32_t n_page, cap;
  int32_t flat[ACI_RX_CLASSES]; /* the page that is this class throughout, or -1 */
} mapper;

static bool map_range(mapper *m, uint32_t first, uint32_t last, int class) {
  for (uint32_t c = first; c <= last; c++) {
    m->page[c & 255] = (uint8_t) class;
    if ((c & 255) != 255) continue;
    bool flat = true;
    for (int i = 1; flat && i < 256; i++) flat = m->page[i] == m->page[0];
    int32_t page = flat ? m->flat[class] : -1;
    if (page < 0) {
      if (m->n_page == m->cap) {
        m->cap = m->cap == 0 ? 64 : m->cap * 2;
        uint8_t(*cell)[256] = realloc(m->r->cell, m->cap * sizeof *cell);
        if (cell == NULL) return false;
        m->r->cell = cell;
      }
      memcpy(m->r->cell[m->n_page], m->page, 256);
      page = (int32_t)m->n_page++;
      if (flat) m->flat[class] = page;
    }
    m->r->page[c >> 8] = (uint16_t)page;
    /* runs of whole pages of one class */
    while (flat && c + 256 <= last) c += 256, m->r->page[c >> 8] = (uint16_t)page;
  }
  return true;
}

static ac_status make_classes(const aci_rx_tree *t, aci_regex *r, ac_err *e) {
  const uint32_t words = (t->n_set + 63) / 64 + (t->n_set == 0);
  size_t n = 0, k = 0;
  for (uint32_t i = 0; i < t->n_set; i++) n += 2 * (size_t)t->set[i].n;
  event *events = malloc((n + 1) * sizeof *events);
  uint64_t *members = calloc((size_t)words * ACI_RX_CLASSES + words, sizeof *members), *now = NULL;
  mapper m = {.r = r};
  ac_status st = AC_OK;
  r->set = calloc(t->n_set + 1, sizeof *r->set);
  if (events == NULL || members == NULL || r->set == NULL) {
    st = AC_FAIL(e, OOM, "no memory for a regular expression");
    goto done;
  }
  now = members + (size_t)words * ACI_RX_CLASSES;
  for (uint32_t i = 0; i < t->n_set; i++)
    for (uint32_t j = 0; j < t->set[i].n; j++) {
      events[k++] = (event){t->set[i].r[j][0], i};
      events[k++] = (event){t->set[i].r[j][1] + 1, i};
    }
  qsort(events, n, sizeof *events, by_place);
  for (size_t i = 0; i < ACI_RX_CLASSES; i++) m.flat[i] = -1;
  k = 0;
  for (uint32_t c = 0; c <= ACI_UNI_LAST;) {
    for (; k < n && events[k].at == c; k++) now[events[k].set / 64] ^= (uint64_t)1 << (events[k].set & 63);
    const uint32_t end = k < n ? events[k].at : ACI_UNI_LAST + 1;
    const int class = class_number(members, &r->n_class, now, words);
    if (class < 0) {
      st = AC_FAIL(e, PARSE, "regular expression: its sets make more than %d classes of characters",
                   ACI_RX_CLASSES);
      goto done;
    }
    for (uint32_t a = c; a < end && a < 128; a++) r->ascii[a] = (uint8_t) class;
    if (!map_range(&m, c, end - 1, class)) {
      st = AC_FAIL(e, OOM, "no memory for a regular expression");
      goto done;
    }
    c = end;
  }
  r->n_set = t->n_set;
  for (uint32_t i = 0; i < t->n_set; i++) {
    for (uint32_t c = 0; c < r->n_class; c++)
      if (members[(size_t)c * words + i / 64] >> (i & 63) & 1) r->set[i][c >> 6] |= (uint64_t)1 << (c & 63);
    for (uint32_t c = r->n_class; c < r->n_class + 2; c++)
      if (t->set[i].edge) r->set[i][c >> 6] |= (uint64_t)1 << (c & 63);
  }
done:
  free(events);
  free(members);
  return st;
}

/* With which classes a match may begin, whatever stands around it. */
static ac_status find_first(aci_regex *r, ac_err *e) {
  uint32_t *stack = malloc((size_t)r->n_prog * 2 * sizeof *stack);
  bool *seen = calloc(r->n_prog, sizeof *seen);
  ac_status st = AC_OK;
  if (stack == NULL || seen == NULL) st = AC_FAIL(e, OOM, "no memory for a regular expression");
  uint32_t n = 0;
  if (st == AC_OK) stack[n++] = 0, seen[0] = true;
  while (n > 0) {
    const aci_rx_inst *i = &r->prog[stack[--n]];
    if (i->op == ACI_RX_OP_BEHIND) r->behind = true;
    if (i->op == ACI_RX_OP_MATCH) r->nullable = true;
    if (i->op == ACI_RX_OP_SET)
      for (int k = 0; k < 4; k++) r->first[k] |= r->set[i->set][k];
    const uint32_t to[2] = {i->x, i->y};
    for (int k = 0; k < (i->op == ACI_RX_OP_SPLIT                             ? 2
                         : i->op == ACI_RX_OP_SET || i->op == ACI_RX_OP_MATCH ? 0
                                                                              : 1);
         k++)
      if (!seen[to[k]]) seen[to[k]] = true, stack[n++] = to[k];
  }
  for (uint32_t i = 0; i < r->n_prog; i++) r->behind = r->behind || r->prog[i].op == ACI_RX_OP_BEHIND;
  free(stack);
  free(seen);
  return st;
}

ac_status aci_regex_new(const char *pattern, size_t n, aci_regex **out, ac_err *e) {
  aci_rx_tree t;
  *out = NULL;
  aci_regex *r = calloc(1, sizeof *r);
  if (r == NULL) return AC_FAIL(e, OOM, "no memory for a regular expression");
  ac_status st = aci_rx_parse(pattern, n, &t, e);
  emitter m = {.t = &t, .r = r, .e = e};
  if (st == AC_OK) st = emit(&m, t.root);
  if (st == AC_OK) st = put(&m, ACI_RX_OP_MATCH, 0, 0, 0, NULL);
  if (st == AC_OK) st = make_classes(&t, r, e);
  if (st == AC_OK) st = find_first(r, e);
  aci_rx_tree_fini(&t);
  if (st == AC_OK) *out = r;
  else aci_regex_free(r);
  return st;
}

void aci_regex_free(aci_regex *r) {
  if (r == NULL) return;
  free(r->prog);
  free(r->set);
  free(r->cell);
  free(r);
}
