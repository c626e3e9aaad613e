/* all_to_all and scatter: every giver has bytes of its own for each other rank.
 *
 * In all_to_all each rank knows only its own counts. So the slots carry them before the data: the
 * most it gives to one other rank (bytes), its part for each and, in groups that are not large, its
 * part from each (elements). */
#include <string.h>

#include "comm/shm/shm.h"

enum { COMPARE_MOST = 32 }; /* ranks up to which everyone compares all pairs */

/* ---- scatter ---- */
static size_t scatter_sent(const aci_shm_transfer *m, int s, int r, size_t *at) {
  const ac_coll *c = m->c->c;
  *at = (size_t)aci_part_at(c, r) * m->c->size;
  return s == c->root ? (size_t)aci_part(c, r) * m->c->size : 0;
}

static size_t scatter_largest(const aci_shm_transfer *m, int s) {
  const ac_coll *c = m->c->c;
  int64_t most = 0;
  for (int r = 0; r < m->c->n && s == c->root; r++)
    if (r != s && aci_part(c, r) > most) most = aci_part(c, r);
  return (size_t)most * m->c->size;
}

static size_t scatter_place(const aci_shm_transfer *m, int s) { return 0; }

/* ---- all_to_all ---- */
static const int64_t *given(const aci_shm_transfer *m, int s) {
  return (const int64_t *)(const void *)aci_shm_data(m->c, s) + 1;
}
static const int64_t *taken(const aci_shm_transfer *m, int s) { return given(m, s) + m->c->n; }

static size_t all_sent(const aci_shm_transfer *m, int s, int r, size_t *at) {
  const int64_t *counts = given(m, s);
  int64_t before = 0;
  for (int i = 0; i < r; i++) before += counts[i];
  *at = (size_t)before * m->c->size;
  return (size_t)counts[r] * m->c->size;
}

static size_t all_largest(const aci_shm_transfer *m, int s) { return (size_t)given(m, s)[-1]; }

static int64_t takes(const ac_coll *c, int s) {
  return c->recv_counts != NULL ? c->recv_counts[s] : c->count;
}

static size_t all_place(const aci_shm_transfer *m, int s) {
  int64_t at = 0;
  for (int i = 0; i < s; i++) at += takes(m->c->c, i);
  return (size_t)at * m->c->size;
}

static ac_status differ(const aci_shm_transfer *m, int s, int r, int64_t want, ac_err *e) {
  const aci_shm_call *c = m->c;
  const char *from = c->s->desc[s]->site, *to = c->s->desc[r]->site;
  return aci_stop(
      c->g->world, AC_MISMATCH, -1, e,
      "all_to_all of %s: rank %d gives %lld elements to rank %d%s%s, which takes %lld%s%s; the "
      "counts must match",
      ac_dtype_name(c->c->dtype), c->g->ranks[s], (long long)given(m, s)[r], c->g->ranks[r],
      from[0] != 0 ? " at " : "", from, (long long)want, to[0] != 0 ? " at " : "", to);
}

static ac_status all_met(const aci_shm_transfer *m, ac_err *e) {
  const aci_shm_call *c = m->c;
  for (int s = 0; s < c->n; s++) {
    if (c->n > COMPARE_MOST) {
      if (given(m, s)[c->me] != takes(c->c, s)) return differ(m, s, c->me, takes(c->c, s), e);
      continue;
    }
    for (int r = 0; r < c->n; r++)
      if (given(m, s)[r] != taken(m, r)[s]) return differ(m, s, r, taken(m, r)[s], e);
  }
  return AC_OK;
}

ac_status aci_shm_all_to_all(aci_shm_call *c, ac_err *e) {
  const ac_coll *x = c->c;
  aci_shm_transfer m = {.c = c, .split = true, .from = x->send, .to = x->recv};
  if (x->kind == AC_COLL_SCATTER) {
    m.from_bytes = c->me == x->root ? (size_t)aci_total(c->g, x) * c->size : 0;
    m.sent = scatter_sent;
    m.largest = scatter_largest;
    m.place = scatter_place;
    return aci_shm_exchange(&m, e);
  }
  int64_t *head = (int64_t *)(void *)c->data;
  size_t n = 1 + (size_t)c->n;
  head[0] = 0;
  for (int r = 0; r < c->n; r++) {
    head[1 + r] = aci_part(x, r);
    if (r != c->me && head[1 + r] * (int64_t)c->size > head[0])
      head[0] = head[1 + r] * (int64_t)c->size;
  }
  if (c->n <= COMPARE_MOST) {
    for (int r = 0; r < c->n; r++) head[n + (size_t)r] = takes(x, r);
    n += (size_t)c->n;
  }
  m.slot_at = (n * sizeof *head + 63) & ~(size_t)63;
  m.from_bytes = (size_t)aci_total(c->g, x) * c->size;
  m.sent = all_sent;
  m.largest = all_largest;
  m.place = all_place;
  m.met = all_met;
  return aci_shm_exchange(&m, e);
}
