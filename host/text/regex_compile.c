/* Regular expressions: from the tree to a program over classes of characters. A class is a set of
 * code points that no part of the pattern distinguishes. Called by the readers of tokenizers. */
#include <stdlib.h>
#include <string.h>

#include "text/regex_impl.h"
#include "text/unicode.h"

/* ---- code ---- */
typedef struct emitter {
  const aci_rx_tree *t;
  aci_rx_program *p;
  uint32_t cap, steps;
  ac_err *e;
} emitter;

static ac_status put(emitter *m, aci_rx_op op, uint32_t set, uint32_t x, uint32_t y, uint32_t *at) {
  aci_rx_program *p = m->p;
  if (p->n == m->cap) {
    if (m->cap >= ACI_RX_PROGRAM)
      return AC_FAIL(m->e, PARSE, "regular expression: its repetitions make it too large");
    const uint32_t cap = m->cap == 0 ? 64 : m->cap * 2;
    aci_rx_inst *inst = realloc(p->inst, cap * sizeof *inst);
    if (inst == NULL) return AC_FAIL(m->e, OOM, "no memory for a regular expression");
    p->inst = inst;
    m->cap = cap;
  }
  p->inst[p->n] = (aci_rx_inst){(uint8_t)op, (uint16_t)set, x, y};
  if (at != NULL) *at = p->n;
  p->n++;
  return AC_OK;
}

/* Code continues into the next node that is put. */
static ac_status emit(emitter *m, uint32_t x);

static ac_status emit_repeat(emitter *m, const aci_rx_node *n) {
  uint32_t split, jumps = 0; /* the open exits, linked through x or y */
  const bool lazy = n->greed == ACI_RX_LAZY;
  for (int32_t i = 0; i < n->min; i++) AC_TRY(emit(m, n->child));
  if (n->max < 0) {
    AC_TRY(put(m, ACI_RX_OP_SPLIT, 0, 0, 0, &split));
    AC_TRY(emit(m, n->child));
    AC_TRY(put(m, ACI_RX_OP_JUMP, 0, split, 0, NULL));
    aci_rx_inst *s = &m->p->inst[split];
    s->x = lazy ? m->p->n : split + 1;
    s->y = lazy ? split + 1 : m->p->n;
    return AC_OK;
  }
  for (int32_t i = n->min; i < n->max; i++) {
    AC_TRY(put(m, ACI_RX_OP_SPLIT, 0, jumps, 0, &split));
    jumps = split + 1;
    AC_TRY(emit(m, n->child));
  }
  while (jumps != 0) {
    aci_rx_inst *s = &m->p->inst[jumps - 1];
    const uint32_t inside = jumps;
    jumps = s->x;
    s->x = lazy ? m->p->n : inside;
    s->y = lazy ? inside : m->p->n;
  }
  return AC_OK;
}

static ac_status emit(emitter *m, uint32_t x) {
  const aci_rx_node *n = &m->t->node[x];
  uint32_t split, jump, jumps = 0;
  if (++m->steps > ACI_RX_STEPS)
    return AC_FAIL(m->e, PARSE, "regular expression: its repetitions make it too large");
  switch (n->kind) {
    case ACI_RX_SET: return put(m, ACI_RX_OP_SET, n->set, m->p->n + 1, 0, NULL);
    case ACI_RX_AHEAD: return put(m, ACI_RX_OP_AHEAD, n->set, m->p->n + 1, 0, NULL);
    case ACI_RX_BEHIND: return put(m, ACI_RX_OP_BEHIND, n->set, m->p->n + 1, 0, NULL);
    case ACI_RX_LOOK:
      if (m->p->looks <= n->set) m->p->looks = n->set + 1u;
      return put(m, ACI_RX_OP_LOOK, n->set, m->p->n + 1, 0, NULL);
    case ACI_RX_CAT:
      for (uint32_t c = n->child; c != 0; c = m->t->node[c].next) AC_TRY(emit(m, c));
      return AC_OK;
    case ACI_RX_ALT:
      for (uint32_t c = n->child; c != 0; c = m->t->node[c].next) {
        if (m->t->node[c].next == 0) {
          AC_TRY(emit(m, c));
          break;
        }
        AC_TRY(put(m, ACI_RX_OP_SPLIT, 0, m->p->n + 1, 0, &split));
        AC_TRY(emit(m, c));
        AC_TRY(put(m, ACI_RX_OP_JUMP, 0, jumps, 0, &jump));
        jumps = jump + 1;
        m->p->inst[split].y = m->p->n;
      }
      while (jumps != 0) {
        aci_rx_inst *j = &m->p->inst[jumps - 1];
        jumps = j->x;
        j->x = m->p->n;
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

static int by_position(const void *a, const void *b) {
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

/* Fills [first, last] of the map from code points to classes. Pages come in order. */
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

/* Cuts the code points into classes that no set of the pattern distinguishes. It sweeps over the
 * sorted ends of all ranges and keeps a bit per set that holds the current code point (now). Each
 * distinct combination is a class (members: its bits). Fills r's map from code point to class, and
 * for each set the classes it consists of. Two further classes stand for the edges of the text. */
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
  qsort(events, n, sizeof *events, by_position);
  for (size_t i = 0; i < ACI_RX_CLASSES; i++) m.flat[i] = -1;
  k = 0;
  for (uint32_t c = 0; c <= ACI_UNI_LAST;) {
    for (; k < n && events[k].at == c; k++)
      now[events[k].set / 64] ^= (uint64_t)1 << (events[k].set & 63);
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
      if (members[(size_t)c * words + i / 64] >> (i & 63) & 1)
        r->set[i][c >> 6] |= (uint64_t)1 << (c & 63);
    for (uint32_t c = r->n_class; c < r->n_class + 2; c++)
      if (t->set[i].edge) r->set[i][c >> 6] |= (uint64_t)1 << (c & 63);
  }
done:
  free(events);
  free(members);
  return st;
}

/* With which classes a match may begin, whatever stands around it. */
static ac_status find_first(const aci_regex *r, aci_rx_program *p, ac_err *e) {
  uint32_t *stack = malloc((size_t)p->n * 2 * sizeof *stack);
  bool *seen = calloc(p->n, sizeof *seen);
  ac_status st = AC_OK;
  if (stack == NULL || seen == NULL) st = AC_FAIL(e, OOM, "no memory for a regular expression");
  uint32_t n = 0;
  if (st == AC_OK) stack[n++] = 0, seen[0] = true;
  while (n > 0) {
    const aci_rx_inst *i = &p->inst[stack[--n]];
    if (i->op == ACI_RX_OP_MATCH) p->nullable = true;
    if (i->op == ACI_RX_OP_SET)
      for (int k = 0; k < 4; k++) p->first[k] |= r->set[i->set][k];
    const uint32_t to[2] = {i->x, i->y};
    const int ways =
        i->op == ACI_RX_OP_SPLIT ? 2 : i->op != ACI_RX_OP_SET && i->op != ACI_RX_OP_MATCH;
    for (int k = 0; k < ways; k++)
      if (!seen[to[k]]) seen[to[k]] = true, stack[n++] = to[k];
  }
  for (uint32_t i = 0; i < p->n; i++) p->behind = p->behind || p->inst[i].op == ACI_RX_OP_BEHIND;
  free(stack);
  free(seen);
  return st;
}

/* Code of a tree. `anywhere`: a match may begin at any position before. */
static ac_status compile(const aci_rx_tree *t, uint32_t root, bool anywhere, aci_rx_program *p,
                         ac_err *e) {
  emitter m = {.t = t, .p = p, .e = e};
  if (anywhere) {
    AC_TRY(put(&m, ACI_RX_OP_SPLIT, 0, 2, 1, NULL));
    AC_TRY(put(&m, ACI_RX_OP_SET, t->any, 0, 0, NULL));
  }
  AC_TRY(emit(&m, root));
  return put(&m, ACI_RX_OP_MATCH, 0, 0, 0, NULL);
}

ac_status aci_regex_new(const char *pattern, size_t n, aci_regex **out, ac_err *e) {
  aci_rx_tree t;
  *out = NULL;
  aci_regex *r = calloc(1, sizeof *r);
  if (r == NULL) return AC_FAIL(e, OOM, "no memory for a regular expression");
  ac_status st = aci_rx_parse(pattern, n, &t, e);
  if (st == AC_OK) r->n_look = t.n_look;
  if (st == AC_OK) st = compile(&t, t.root, false, &r->main, e);
  for (uint32_t k = 0; st == AC_OK && k < t.n_look; k++) {
    r->look[k].ahead = t.look[k].ahead;
    r->look[k].negated = t.look[k].negated;
    st = compile(&t, t.look[k].child, true, &r->look[k].p, e);
  }
  if (st == AC_OK) st = make_classes(&t, r, e);
  if (st == AC_OK) st = find_first(r, &r->main, e);
  for (uint32_t k = 0; st == AC_OK && k < t.n_look; k++) st = find_first(r, &r->look[k].p, e);
  aci_rx_tree_fini(&t);
  if (st == AC_OK) *out = r;
  else aci_regex_free(r);
  return st;
}

void aci_regex_free(aci_regex *r) {
  if (r == NULL) return;
  free(r->main.inst);
  for (uint32_t k = 0; k < r->n_look; k++) free(r->look[k].p.inst);
  free(r->set);
  free(r->cell);
  free(r);
}
