/* The world of one rank: collectives are copies. A backend like the others, so that nobody asks for
 * the size. */
#include <string.h>

#include "comm/comm_impl.h"

static ac_status join(ac_world *w, ac_err *e) {
  if (w->place.size != 1)
    return AC_FAIL(e, INVALID,
                   "backend solo: this is rank %d of %d; choose another backend, or none",
                   w->place.rank, w->place.size);
  return AC_OK;
}

static void leave(ac_world *w, const char *site) {}

/* Every collective of one rank, reductions included, hands its own data back. */
static ac_status run(ac_group *g, const ac_coll *c, aci_desc *d, ac_err *e) {
  if (c->kind == AC_COLL_BARRIER || c->kind == AC_COLL_BROADCAST || c->send == c->recv)
    return AC_OK;
  const size_t bytes = (size_t)aci_part(c, 0) * ac_dtype_bytes(c->dtype);
  if (bytes > 0 && c->recv != NULL && c->send != NULL) memmove(c->recv, c->send, bytes);
  return AC_OK;
}

static ac_status send_recv(ac_group *g, const ac_coll *c, aci_desc *d, void **state, bool *done,
                           ac_err *e) {
  return AC_FAIL(e, INVALID, "%s: there is no other rank", ac_coll_name(c->kind));
}

const aci_backend aci_solo_backend = {.struct_size = sizeof(aci_backend),
                                      .name = "solo",
                                      .join = join,
                                      .leave = leave,
                                      .run = run,
                                      .send_recv = send_recv};
