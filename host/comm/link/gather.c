/* all_gather, gather and scatter over messages. Called by run.c. Few bytes go straight to everyone.
 * Many bytes travel around the ring of ranks, which crosses from machine to machine once. */
#include <string.h>

#include "comm/link/run.h"

enum { FEW_BYTES = 64 << 10 };

static bool is_few(const aci_run *x) {
  return (uint64_t)aci_total(x->g, x->c) * x->width <= FEW_BYTES;
}
static size_t bytes_of(const aci_run *x, int r) { return (size_t)aci_part(x->c, r) * x->width; }

static void copy(void *dst, const void *src, size_t bytes) {
  if (dst != src && bytes > 0) memmove(dst, src, bytes);
}

ac_status aci_link_all_gather(aci_run *x, ac_err *e) {
  const ac_coll *c = x->c;
  const int me = x->g->rank, size = x->g->size;
  copy(aci_at(c->recv, aci_part_at(c, me), x->width), c->send, bytes_of(x, me));
  if (size > 2 && !is_few(x)) {
    AC_TRY(aci_run_meet(x, e));
    const int left = aci_run_peer(x, size - 1), right = aci_run_peer(x, 1);
    return aci_link_relay(x, left, (aci_parts){left, size - 1}, right, (aci_parts){me, size - 1}, 1,
                          e);
  }
  const bool early = is_few(x);
  AC_TRY(aci_run_room(x, 1, 2 * (size - 1), e));
  if (!early) AC_TRY(aci_run_meet(x, e));
  for (int i = 1; i < size; i++) {
    const int to = aci_run_peer(x, i), from = aci_run_peer(x, size - i);
    AC_TRY(aci_run_recv(x, &x->batch[0], from, aci_at(c->recv, aci_part_at(c, from), x->width),
                        bytes_of(x, from), e));
    AC_TRY(aci_run_send(x, &x->batch[0], to, c->send, bytes_of(x, me), e));
  }
  if (early) AC_TRY(aci_run_meet(x, e));
  return aci_run_wait(x, &x->batch[0], e);
}

ac_status aci_link_gather_scatter(aci_run *x, ac_err *e) {
  const ac_coll *c = x->c;
  const int me = x->g->rank, size = x->g->size;
  const bool gathers = c->kind == AC_COLL_GATHER, early = is_few(x);
  AC_TRY(aci_run_room(x, 1, size - 1, e));
  if (!early) AC_TRY(aci_run_meet(x, e));
  aci_batch *b = &x->batch[0];
  if (me != c->root) {
    if (gathers) AC_TRY(aci_run_send(x, b, c->root, c->send, bytes_of(x, me), e));
    else AC_TRY(aci_run_recv(x, b, c->root, c->recv, bytes_of(x, me), e));
  }
  for (int i = 0; i < size && me == c->root; i++) {
    const int r = aci_run_peer(x, i);
    char *at = aci_at(gathers ? c->recv : c->send, aci_part_at(c, r), x->width);
    if (r == me && gathers) copy(at, c->send, bytes_of(x, r));
    else if (r == me) copy(c->recv, at, bytes_of(x, r));
    else if (gathers) AC_TRY(aci_run_recv(x, b, r, at, bytes_of(x, r), e));
    else AC_TRY(aci_run_send(x, b, r, at, bytes_of(x, r), e));
  }
  if (early) AC_TRY(aci_run_meet(x, e));
  return aci_run_wait(x, b, e);
}
