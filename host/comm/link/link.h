/* Collectives over messages: every algorithm once, for any backend that can move bytes between two
 * ranks (tcp, mpi).
 *
 * Before data moves the members exchange descriptors over the host channel (exchange_descs), so
 * that a mismatch, a missing and a dead rank are named as in shared memory. Reductions: every rank
 * gets its part of all buffers, reduces them by aci_reduce, then parts are gathered: the same bits
 * as in shared memory. */
#ifndef ACI_COMM_LINK_H
#define ACI_COMM_LINK_H
#include "comm/comm_impl.h"

typedef struct aci_request { /* one transfer. Zero before use */
  int peer;                  /* global rank */
  bool sends;
  uint64_t channel; /* distinguishes transfers: group id and sequence or tag (aci_channel) */
  void *ptr;
  size_t bytes, done; /* done: progress, the link's */
  bool over;
  void *impl;           /* the link's */
  const aci_desc *want; /* for messages. May be NULL */
} aci_request;

typedef struct aci_link {
  /* start: begins a transfer, does not block. */
  ac_status (*start)(ac_world *w, aci_request *m, ac_err *e);
  /* progress: works at n transfers for at most wait_ms milliseconds (0: does not block). Sets
   * ->over and returns as soon as one of them gets over. PEER with the rank when one died.
   * Transfers of one direction between two ranks on one channel pair up in the order in which they
   * were started. Transfers of a broken call may differ in size until exchange_descs reports it. */
  ac_status (*progress)(ac_world *w, aci_request *const *m, int n, int wait_ms, ac_err *e);
  void (*cancel)(ac_world *w, aci_request *m); /* forgets a transfer that will not be waited for */
  /* exchange_descs: sends d to all members and gets theirs into all[0..size-1] (own included).
   * Serves aci_wait_check. PEER, TIMEOUT. */
  ac_status (*exchange_descs)(ac_group *g, const aci_desc *d, aci_desc *all, ac_err *e);
} aci_link;

static inline uint64_t aci_channel(const ac_group *g, uint32_t seq_or_tag, bool p2p) {
  return (uint64_t)g->id << 33 | (uint64_t)p2p << 32 | seq_or_tag;
}
/* The run and send_recv of a backend over a link. */
ac_status aci_link_run(const aci_link *l, ac_group *g, const ac_coll *c, aci_desc *d, ac_err *e);
ac_status aci_link_send_recv(const aci_link *l, ac_group *g, const ac_coll *c, aci_desc *d,
                             void **state, bool *done, ac_err *e);

#endif
