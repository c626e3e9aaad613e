/* One collective under way over a link: its transfers, and the waits for them. Shared by the
 * algorithms of this folder.
 *
 * Each algorithm starts transfers in batches, calls aci_run_meet once (small ones after their
 * transfers have begun, which saves a round trip), and waits. Between two ranks all start theirs in
 * the same order, since that is how they pair up. */
#ifndef ACI_COMM_RUN_H
#define ACI_COMM_RUN_H
#include "comm/link/link.h"

enum {
  ACI_EARLY =
      /* bytes of a message that may start before the ranks have compared their descriptors */
  16 << 10,
  ACI_PIECE = 1 << 20, /* bytes of a message in pipelines */
  ACI_BATCHES = 4
};

typedef struct aci_batch {
  aci_request *m;
  int n;
} aci_batch;

typedef struct aci_run {
  const aci_link *l;
  ac_group *g;
  const ac_coll *c;
  aci_desc *d;
  size_t width; /* of an element */
  int most;     /* transfers of a batch */
  aci_request *moves;
  aci_request **ask; /* for progress */
  aci_batch batch[ACI_BATCHES];
} aci_run;

/* n_batches of at most `most` transfers each. */
ac_status aci_run_room(aci_run *x, int n_batches, int most, ac_err *e);
ac_status aci_run_meet(aci_run *x, ac_err *e);
/* Begins one transfer with a group rank. */
ac_status aci_run_start(aci_run *x, aci_request *m, int peer, bool sends, void *p, size_t bytes,
                        ac_err *e);
/* The same into a batch. Nothing is done for no bytes. */
ac_status aci_run_send(aci_run *x, aci_batch *b, int peer, const void *p, size_t bytes, ac_err *e);
ac_status aci_run_recv(aci_run *x, aci_batch *b, int peer, void *p, size_t bytes, ac_err *e);
/* Waits until all transfers of the batch are over. It may then be filled again. */
ac_status aci_run_wait(aci_run *x, aci_batch *b, ac_err *e);
/* Until at least one of n transfers is over, none of which is. */
ac_status aci_run_wait_any(aci_run *x, aci_request *const *m, int n, int64_t began, ac_err *e);

/* Forgets unfinished transfers, before their memory is freed. */
void aci_run_drop(aci_run *x);

static inline int aci_run_peer(const aci_run *x, int i) { return (x->g->rank + i) % x->g->size; }
static inline char *aci_at(const void *p, int64_t element, size_t width) {
  return (char *)(uintptr_t)p + (size_t)element * width;
}

/* ---- the algorithms. P > 1 ---- */
/* reduce.c: ALL_REDUCE, REDUCE, REDUCE_SCATTER */
ac_status aci_link_reduce(aci_run *x, ac_err *e);
ac_status aci_link_all_gather(aci_run *x, ac_err *e);     /* gather.c */
ac_status aci_link_gather_scatter(aci_run *x, ac_err *e); /* gather.c */
ac_status aci_link_broadcast(aci_run *x, ac_err *e);      /* broadcast.c */
ac_status aci_link_all_to_all(aci_run *x, ac_err *e);     /* all_to_all.c */

/* ---- relay.c: parts that travel along a chain of ranks, piece by piece ---- */
typedef struct aci_parts { /* n parts, one after the other: of group rank first, first - 1, ... */
  int first, n;
} aci_parts;
/* Gets the parts of `in` from group rank `left` and sends the parts of `out` to `right`. The first
 * `own` parts of out are here already, the following ones come from in. All lie in c->recv. left or
 * right -1: none. */
ac_status aci_link_relay(aci_run *x, int left, aci_parts in, int right, aci_parts out, int own,
                         ac_err *e);

#endif
