/* broadcast over messages. Called by run.c. Few bytes go down a binomial tree, many along the chain
 * of ranks that follow the root, piece by piece. */
#include "comm/link/run.h"

enum { FEW_BYTES = 64 << 10 };

/* Ranks are counted from the root: v gets from v without its highest bit, and sends to v + each
 * higher bit. */
static ac_status tree(aci_run *x, ac_err *e) {
  const ac_coll *c = x->c;
  const int size = x->g->size, v = (x->g->rank - c->root + size) % size;
  const size_t bytes = (size_t)c->count * x->width;
  int low = 1;
  while (low <= v) low *= 2;
  AC_TRY(aci_run_room(x, 2, 32, e));
  if (v != 0)
    AC_TRY(aci_run_recv(x, &x->batch[0], (v - low / 2 + c->root) % size, c->recv, bytes, e));
  for (int bit = low; v == 0 && bit < size; bit *= 2)
    AC_TRY(aci_run_send(x, &x->batch[1], (bit + c->root) % size, c->recv, bytes, e));
  AC_TRY(aci_run_meet(x, e));
  AC_TRY(aci_run_wait(x, &x->batch[0], e));
  for (int bit = low; v != 0 && v + bit < size; bit *= 2)
    AC_TRY(aci_run_send(x, &x->batch[1], (v + bit + c->root) % size, c->recv, bytes, e));
  return aci_run_wait(x, &x->batch[1], e);
}

ac_status aci_link_broadcast(aci_run *x, ac_err *e) {
  const ac_coll *c = x->c;
  const int size = x->g->size, v = (x->g->rank - c->root + size) % size;
  if ((uint64_t)c->count * x->width <= FEW_BYTES) return tree(x, e);
  AC_TRY(aci_run_meet(x, e));
  const bool first = v == 0, last = v == size - 1;
  return aci_link_relay(x, first ? -1 : aci_run_peer(x, size - 1), (aci_parts){0, first ? 0 : 1},
                        last ? -1 : aci_run_peer(x, 1), (aci_parts){0, last ? 0 : 1}, first ? 1 : 0,
                        e);
}
