/* The shared-memory backend: ranks of one machine meet in the slots of the launcher's segment.
 * Shared by the files of shm/.
 *
 * Small buffers travel in the slots, so that a collective is one meeting. Large ones are read in
 * place if they are in the ranks' heaps. Private ones go piece by piece through staging buffers.
 *
 * When may memory be written again?
 *   slot data     two turns: written for call s only after all arrived at s-1, when nobody reads
 *                 s-2 any more
 *   stage in      pieces alternate between two buffers, over the borders of calls (`pieces`): the
 *                 other one was read before the last barrier or arrival. The first piece of a call
 *                 may so be written before its arrival
 *   stage out     the same, but only after the arrival of the call
 *   user buffers  a barrier after the last read by others */
#ifndef ACI_COMM_SHM_H
#define ACI_COMM_SHM_H
#include "comm/wait.h"

/* The backend's state of a group. */
typedef struct aci_shm_group {
  uint32_t base;   /* the words of the slots count from here */
  uint32_t phase;  /* barriers inside collectives so far */
  uint32_t pieces; /* pieces staged so far */
  bool staged;     /* the own stage has its pages */
  aci_slot *own;
  aci_stage *stage;      /* the own */
  aci_slot **slot;       /* of each member */
  const aci_desc **desc; /* of each member in the call under way. NULL: not come yet */
  int *local;            /* local rank of each member */
} aci_shm_group;

/* One call, as the algorithms see it. */
typedef struct aci_shm_call {
  ac_group *g;
  aci_shm_group *s;
  const ac_coll *c;
  aci_desc *d;
  int n, me;
  size_t size;         /* bytes of an element */
  unsigned char *data; /* the own slot's, for this call */
  size_t in_slot;      /* bytes of it in use */
  bool differs;        /* a member that came has another descriptor */
} aci_shm_call;

/* ---- meet.c ---- */
/* Arrives with c->d and the data in c->data. Returns when all are here and agree. */
ac_status aci_shm_meet(aci_shm_call *c, ac_err *e);
/* A barrier inside the call. */
ac_status aci_shm_barrier(aci_shm_call *c, ac_err *e);
/* The location of a buffer's bytes, for d->where_* and d->at_*. */
uint8_t aci_shm_where(const aci_shm_call *c, const void *p, size_t bytes, uint64_t *at);
/* The own stage is about to be used. */
ac_status aci_shm_stage(aci_shm_call *c, ac_err *e);
static inline unsigned char *aci_shm_data(const aci_shm_call *c, int r) {
  return c->s->slot[r]->data[c->d->seq & 1];
}
/* Member r's memory at an offset of its heap. */
ac_status aci_shm_heap(const aci_shm_call *c, int r, uint64_t at, size_t bytes, unsigned char **out,
                       ac_err *e);
static inline aci_stage *aci_shm_stage_of(const aci_shm_call *c, int r) {
  return aci_stage_of(c->g->world->segment.head, c->g->slot, c->s->local[r]);
}
/* memcpy of any length that an abort ends early. */
ac_status aci_shm_copy(const aci_shm_call *c, void *dst, const void *src, size_t bytes, ac_err *e);

/* ---- exchange.c: bytes from ranks to ranks, the machinery of everything that does not reduce ---- */
typedef struct aci_shm_transfer {
  aci_shm_call *c;
  /* every receiver gets bytes of its own. Otherwise all get the same, from the start of `from` */
  bool split;
  const void *from; /* this rank's data to send */
  size_t from_bytes;
  void *to;
  size_t slot_at; /* bytes of the slot's data that are in use already */
  /* Bytes that s gives to r, and their start in its buffer. Asked after the meeting, and for this
   * rank's own also before. */
  size_t (*sent)(const struct aci_shm_transfer *m, int s, int r, size_t *at);
  /* the most that s gives to one other */
  size_t (*largest)(const struct aci_shm_transfer *m, int s);
  /* position in `to` of the bytes of s */
  size_t (*place)(const struct aci_shm_transfer *m, int s);
  /* right after the meeting. May be NULL */
  ac_status (*met)(const struct aci_shm_transfer *m, ac_err *e);
} aci_shm_transfer;
ac_status aci_shm_exchange(aci_shm_transfer *m, ac_err *e);

/* ---- one file per algorithm ---- */
ac_status aci_shm_all_reduce(aci_shm_call *c, ac_err *e); /* also reduce, reduce_scatter */
ac_status aci_shm_gather(aci_shm_call *c, ac_err *e);     /* all_gather, gather, broadcast */
ac_status aci_shm_all_to_all(aci_shm_call *c, ac_err *e); /* also scatter */
ac_status aci_shm_send_recv(ac_group *g, const ac_coll *c, aci_desc *d, void **state, bool *done,
                            ac_err *e);

typedef struct aci_shm_pairs aci_shm_pairs; /* sends and receives of this rank */
aci_shm_pairs *aci_shm_pairs_new(int n_local);
void aci_shm_pairs_free(aci_shm_pairs *p);
/* Withdraws this rank's offers and requests. */
void aci_shm_pairs_reset(const aci_shm_pairs *p, const ac_world *w);

#endif
