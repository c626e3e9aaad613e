/* The reason for the end of a job, as this rank knows it. It is set once, passed to the ranks of
 * this machine through the segment and to others through the backend. Called by every wait and by
 * the code that finds a cause. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "comm/wait.h"

enum { NOT_YET, BEING_WRITTEN, WRITTEN };

/* The first thread that comes writes it. Returns true for that one. */
static bool keep(ac_world *w, ac_status code, int rank, const char *prefix, const char *text) {
  int none = NOT_YET;
  if (!atomic_compare_exchange_strong(&w->aborted, &none, BEING_WRITTEN)) return false;
  ac_err_set(&w->abort_reason, code, __FILE__, __LINE__, "%s%s", prefix, text);
  w->abort_reason.rank = rank;
  atomic_store_explicit(&w->aborted, WRITTEN, memory_order_release);
  return true;
}

/* Takes over the reason from the segment. False: the segment has none. */
static bool learn(ac_world *w) {
  aci_head *h = w->segment.head;
  if (h == NULL || atomic_load_explicit(&h->abort_reason.set, memory_order_acquire) == 0)
    return false;
  const aci_abort_reason *v = &h->abort_reason;
  char text[sizeof v->text];
  memcpy(text, v->text, sizeof text);
  text[sizeof text - 1] = 0;
  const ac_status code = v->code > 0 && v->code <= AC_STATUS_LAST ? (ac_status)v->code : AC_PEER;
  const bool known = strncmp(text, "stopped: ", 9) == 0; /* by the other machine's ranks */
  const int rank = v->rank >= 0 ? aci_rank_of_start(w, v->rank) : v->rank;
  if (keep(w, code, rank, known ? "" : "stopped: ", text) && w->backend != NULL &&
      w->backend->abort != NULL)
    w->backend->abort(w, code, rank, text);
  return true;
}

void aci_abort(ac_world *w, ac_status code, int rank, const char *text) {
  if (atomic_load_explicit(&w->aborted, memory_order_acquire) != NOT_YET) return;
  if (aci_is_guest(w)) { /* it ends alone */
    keep(w, code, rank, "", text);
    return;
  }
  aci_head *h = w->segment.head;
  const int start = rank >= 0 && rank < w->place.size ? aci_start_of(w, rank) : rank;
  if (h != NULL && !aci_abort_segment(h, code, start, text)) {
    /* another rank was first: its cause is everyone's, once it has been written */
    for (int i = 0; i < 1000; i++) {
      if (learn(w)) return;
      sched_yield();
    }
  }
  if (keep(w, code, rank, "", text) && w->backend != NULL && w->backend->abort != NULL)
    w->backend->abort(w, code, rank, text);
}

static ac_status over(ac_world *w, ac_err *e) {
  int have = atomic_load_explicit(&w->aborted, memory_order_acquire);
  if (have == NOT_YET && !learn(w)) return AC_OK;
  while ((have = atomic_load_explicit(&w->aborted, memory_order_acquire)) == BEING_WRITTEN)
    sched_yield();
  if (e != NULL) *e = w->abort_reason;
  return w->abort_reason.code;
}

ac_status aci_aborted(ac_world *w, ac_err *e) {
  AC_TRY(over(w, e));
  const aci_head *h = w->segment.head;
  if (h == NULL || atomic_load_explicit(&h->abort_reason.round, memory_order_relaxed) == w->round ||
      w->observes)
    return AC_OK;
  return AC_FAIL(e, MEMBERSHIP,
                 "a rank of this job was lost; an Accelerator's gather, reduce and broadcast "
                 "continue without it, collectives of accel.dist do not");
}

bool ac_world_aborted(ac_world *w, ac_err *e) { return over(w, e) != AC_OK; }
