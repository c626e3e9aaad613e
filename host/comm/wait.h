/* One wait for other ranks, as the checks see it. Shared by wait.c, watch.c, deadlock.c and
 * shm/. */
#ifndef ACI_COMM_WAIT_H
#define ACI_COMM_WAIT_H
#include "comm/comm_impl.h"

typedef struct aci_waiting {
  ac_group *g;
  const aci_desc *mine;
  int64_t began, now;
  aci_wait_kind kind;
  uint32_t missing[ACI_MAX_LOCAL / 32]; /* by local rank */
  int first;                            /* group rank of a missing one. -1: unknown */
  /* Whether it has come meanwhile. NULL: unknown, so that an end is trusted only when it lasts. */
  bool (*came)(const struct aci_waiting *k, int local_rank);
  const void *arg;
  aci_deadlock_probe *probe; /* NULL: no look for deadlocks */
} aci_waiting;

static inline bool aci_bit(const uint32_t *set, int i) { return set[i / 32] >> (i % 32) & 1; }
static inline void aci_bit_set(uint32_t *set, int i) { set[i / 32] |= 1u << (i % 32); }
static inline void aci_bit_clear(uint32_t *set, int i) { set[i / 32] &= ~(1u << (i % 32)); }
/* Local rank of a group rank. -1: it is on another machine. */
static inline int aci_local_of(const ac_group *g, int group_rank) {
  return aci_seat_of(g->world, g->ranks[group_rank]);
}
/* World rank of a number at the start. Of a rank that was lost: that number. */
static inline int aci_rank_of_start(const ac_world *w, int start) {
  for (int r = 0; w->reseated && r < w->place.size; r++)
    if (w->seat[r] == start) return r;
  return start;
}
/* The same of a local rank. */
static inline int aci_global_of(const ac_world *w, int local_rank) {
  return aci_rank_of_start(w, w->first + local_rank);
}

/* ---- wait.c ---- */
/* Shows this rank's wait on its page. again: it is the wait shown last, and k->missing had not come
 * at k->now. */
void aci_wait_show(const aci_waiting *k, bool again);
/* Waits until the word at `offset` of every other member's slot is at or past value. came (may be
 * NULL) is called once for each member as it comes. Its error ends the wait. */
ac_status aci_wait_all(ac_group *g, size_t offset, uint32_t value, const aci_desc *mine,
                       ac_status (*came)(void *arg, int group_rank, ac_err *e), void *arg,
                       ac_err *e);

/* ---- watch.c ---- */
/* The abort reason, peers that ended or stopped, the timeout, deadlocks: an error ends the wait and
 * the job. */
ac_status aci_watch(aci_waiting *k, ac_err *e);
/* Ends the job: sets the abort reason, and fills *e for this rank's caller. */
ac_status aci_stop(ac_world *w, ac_status code, int rank, ac_err *e, const char *fmt, ...)
    AC_PRINTF(5, 6);

/* ---- deadlock.c ---- */
ac_status aci_deadlock(aci_waiting *k, ac_err *e);

#endif
