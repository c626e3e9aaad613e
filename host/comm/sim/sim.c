/* One rank of a simulated world, for dry runs: collectives return at once and count the bytes that
 * would travel (ac_world_bytes_sent). Buffers may be NULL (tensors without memory). Then only the
 * counting is done.
 *
 * Contents match a world in which every rank holds this rank's data, so that a script continues
 * with numbers of the right size. Sums are own * P, means and extremes own, gathered parts copies
 * of the own part (cut or repeated if parts are uneven). Broadcasts leave the buffer unchanged, and
 * all_to_all brings P times this rank's part for itself. Values that only another rank can know are
 * zero: a scatter from another root, every recv. Called by world.c, group.c and work.c. */
#include <string.h>

#include "comm/sim/sim.h"

static ac_status join(ac_world *w, ac_err *e) {
  if (w->place.size < 1 || w->place.rank < 0 || w->place.rank >= w->place.size)
    return AC_FAIL(e, INVALID, "backend sim: rank %d of %d", w->place.rank, w->place.size);
  return AC_OK;
}

static void leave(ac_world *w, const char *site) {}

/* Fills n elements from `have` ones, again and again. None: zeros. src may lie within dst. */
static void repeat(char *dst, int64_t n, const char *src, int64_t have, size_t width) {
  if (have <= 0) {
    memset(dst, 0, (size_t)n * width);
    return;
  }
  for (int64_t at = 0; at < n; at += have) {
    const int64_t k = n - at < have ? n - at : have;
    if (dst + (size_t)at * width != src) memmove(dst + (size_t)at * width, src, (size_t)k * width);
  }
}

/* recv_counts is ALL_TO_ALL's alone. */
static int64_t recv_part(const ac_coll *c, int r) {
  return c->kind == AC_COLL_ALL_TO_ALL && c->recv_counts != NULL ? c->recv_counts[r]
                                                                 : aci_part(c, r);
}

/* recv of all ranks' parts, each a copy of `own` (have elements), which may be one of the parts. */
static void fill_parts(const ac_group *g, const ac_coll *c, const char *own, int64_t have) {
  const size_t width = ac_dtype_bytes(c->dtype);
  char *at = c->recv;
  for (int r = 0; r < g->size; r++) {
    const int64_t n = recv_part(c, r);
    repeat(at, n, own, have, width);
    at += (size_t)n * width;
  }
}

static ac_status run(ac_group *g, const ac_coll *c, aci_desc *d, ac_err *e) {
  if (c->kind == AC_COLL_BARRIER || c->kind == AC_COLL_BROADCAST || c->recv == NULL) return AC_OK;
  const size_t width = ac_dtype_bytes(c->dtype);
  const int64_t mine = aci_part(c, g->rank);
  const char *own_of_all =
      c->send == NULL ? NULL : (const char *)c->send + (size_t)aci_part_at(c, g->rank) * width;
  if (c->send == NULL && c->kind != AC_COLL_SCATTER) return AC_OK;
  switch (c->kind) {
    case AC_COLL_ALL_REDUCE:
      aci_sim_copies(c->dtype, c->op, g->size, c->send, c->recv, c->count);
      break;
    case AC_COLL_REDUCE:
      if (g->rank == c->root) aci_sim_copies(c->dtype, c->op, g->size, c->send, c->recv, c->count);
      break;
    case AC_COLL_REDUCE_SCATTER:
      if (mine > 0) aci_sim_copies(c->dtype, c->op, g->size, own_of_all, c->recv, mine);
      break;
    case AC_COLL_GATHER:
      if (g->rank != c->root) break;
      /* fall through */
    case AC_COLL_ALL_GATHER: fill_parts(g, c, c->send, mine); break;
    case AC_COLL_ALL_TO_ALL: fill_parts(g, c, own_of_all, mine); break;
    case AC_COLL_SCATTER:
      if (g->rank != c->root) memset(c->recv, 0, (size_t)mine * width);
      else if (own_of_all != NULL && mine > 0) memmove(c->recv, own_of_all, (size_t)mine * width);
      break;
    default: break;
  }
  return AC_OK;
}

static ac_status send_recv(ac_group *g, const ac_coll *c, aci_desc *d, void **state, bool *done,
                           ac_err *e) {
  if (c->kind == AC_COLL_RECV && c->recv != NULL)
    memset(c->recv, 0, (size_t)c->count * ac_dtype_bytes(c->dtype));
  *done = true;
  return AC_OK;
}

/* n * (P-1) / P without overflow. */
static uint64_t but_one(uint64_t n, uint64_t p) { return n / p * (p - 1) + n % p * (p - 1) / p; }

uint64_t aci_sim_bytes(const ac_group *g, const ac_coll *c) {
  const uint64_t width = c->kind == AC_COLL_BARRIER ? 0 : ac_dtype_bytes(c->dtype),
                 p = (uint64_t)g->size;
  const uint64_t buffer = (uint64_t)c->count * width;
  const int next = (g->rank + 1) % g->size;
  if (width == 0 || p == 1) return 0;
  switch (c->kind) {
    case AC_COLL_ALL_REDUCE: return 2 * but_one(buffer, p);
    case AC_COLL_REDUCE: return g->rank == c->root ? 0 : buffer;
    case AC_COLL_BROADCAST: return next == c->root ? 0 : buffer;
    case AC_COLL_ALL_GATHER: return (uint64_t)(aci_total(g, c) - aci_part(c, next)) * width;
    case AC_COLL_GATHER: return g->rank == c->root ? 0 : (uint64_t)aci_part(c, g->rank) * width;
    case AC_COLL_SCATTER:
      return g->rank != c->root ? 0 : (uint64_t)(aci_total(g, c) - aci_part(c, g->rank)) * width;
    case AC_COLL_REDUCE_SCATTER:
    case AC_COLL_ALL_TO_ALL: return (uint64_t)(aci_total(g, c) - aci_part(c, g->rank)) * width;
    case AC_COLL_SEND: return buffer;
    default: return 0;
  }
}

const aci_backend aci_sim_backend = {.struct_size = sizeof(aci_backend),
                                     .name = "sim",
                                     .join = join,
                                     .leave = leave,
                                     .run = run,
                                     .send_recv = send_recv,
                                     .bytes = aci_sim_bytes};
