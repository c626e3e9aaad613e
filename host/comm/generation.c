/* The generations of an elastic job, on the side of a rank. Called by bindings/comm/lac_membership.c
 * and by C programs. The launcher's side is launch/elastic.c.
 *
 * The launcher sees that a rank has died, collects it, and raises `round` in the segment. Every rank
 * that knows an older round leaves its waits (aci_aborted) and comes here. It lets its queued works
 * end, reports the round on its page, and waits. Once all living ranks have reported the newest
 * round, nothing uses the slots: the launcher decides which update counts, empties the slots,
 * writes the list of members and raises `formed`. A further death raises `round` again, and the
 * ranks that wait report anew.
 *
 * One process decides for one machine, and all ranks die with it. So this needs no agreement, as
 * the membership core (launch/member/) reaches between machines. */
#include <stdlib.h>
#include <string.h>

#include "comm/wait.h"

enum { NAP = 10000000 };

bool ac_world_elastic(const ac_world *w) { return w->generation != 0; }
uint64_t ac_world_generation(const ac_world *w) { return w->generation; }

void ac_world_set_phase(ac_world *w, ac_phase phase, uint64_t update) {
  if (w->page == NULL) return;
  atomic_store_explicit(&w->page->phase, update << 2 | (uint64_t)phase, memory_order_release);
}

static uint32_t newest_round(const ac_world *w) {
  return atomic_load_explicit(&w->segment.head->abort_reason.round, memory_order_acquire);
}

/* Waits until the launcher has formed the generation that ends `round`, or a newer round began. */
static ac_status wait_formed(ac_world *w, uint32_t round, int64_t began, ac_err *e) {
  aci_members *m = &w->segment.head->members;
  for (;;) {
    const uint32_t formed = atomic_load_explicit(&m->formed, memory_order_acquire);
    if (formed == round || newest_round(w) != round) return AC_OK;
    if (ac_world_aborted(w, e)) return w->abort_reason.code;
    const int64_t now = aci_now_ns(), limit = atomic_load(&w->timeout_ns);
    const int64_t at = w->interrupt != NULL ? __atomic_load_n(w->interrupt, __ATOMIC_RELAXED) : 0;
    if (at != 0 && now >= at)
      return aci_stop(w, AC_INTERRUPTED, w->place.rank, e, "rank %d was interrupted in recover",
                      w->place.rank);
    if (limit > 0 && now - began > limit)
      return aci_stop(
          w, AC_TIMEOUT, -1, e,
          "rank %d waited %.3g s in recover for the other ranks; raise --timeout if they are only slow",
          w->place.rank, (double)(now - began) / 1e9);
    aci_futex_wait(&m->formed, formed, NAP);
  }
}

/* Leaves out the members that are lost and gives the others their new numbers. to: by number at the
 * start. */
static void renumber(ac_group *g, const int *to) {
  const ac_world *w = g->world;
  int n = 0;
  g->rank = -1;
  for (int i = 0; i < g->size; i++) {
    const int start = aci_start_of(w, g->ranks[i]);
    if (to[start] < 0) continue;
    if (start == aci_start_rank(w)) g->rank = n;
    g->ranks[n++] = to[start];
  }
  g->size = n;
  g->seq = 0;
}

/* The group of all ranks: the members of before and those that joined, which are the last. */
static ac_status take_all(ac_group *g, const aci_members *m, int rank, ac_err *e) {
  int *ranks = realloc(g->ranks, (size_t)m->n * sizeof *ranks);
  if (ranks == NULL) return AC_FAIL(e, OOM, "no memory for a world of %d", m->n);
  g->ranks = ranks;
  for (int r = 0; r < m->n; r++) ranks[r] = r;
  g->rank = rank;
  g->size = m->n;
  g->seq = 0;
  return AC_OK;
}

/* Who was lost and who joined. to: the new rank by the number at the start. */
static void compare(const ac_world *w, const aci_members *m, const uint8_t *before, const int *to,
                    ac_membership *out) {
  bool was[ACI_MAX_LOCAL] = {false};
  out->n_lost = out->n_joined = out->n_healing = 0;
  for (int r = 0; r < out->size_before; r++) {
    was[before[r]] = true;
    if (to[before[r]] < 0) out->lost[out->n_lost++] = r;
  }
  for (int r = 0; r < m->n; r++) {
    const bool healing = m->healing[m->seat[r]] != 0;
    if (w->observes ? healing : !was[m->seat[r]]) out->joined[out->n_joined++] = r;
    if (healing) out->healing[out->n_healing++] = r;
  }
}

/* This rank has left. It ends, and must not touch the words of the others. */
static ac_status left(ac_world *w, ac_membership *out) {
  out->leaves = true;
  for (ac_group *g = w->all; g != NULL; g = g == w->all ? w->groups : g->next) {
    free(g->impl);
    g->impl = NULL;
  }
  return AC_OK;
}

ac_status aci_generation_adopt(ac_world *w, const uint8_t *before, ac_membership *out, ac_err *e) {
  const aci_members *m = &w->segment.head->members;
  int to[ACI_MAX_LOCAL];
  for (int i = 0; i < ACI_MAX_LOCAL; i++) to[i] = -1;
  for (int r = 0; r < m->n; r++) to[m->seat[r]] = r;
  compare(w, m, before, to, out);
  out->change = (ac_change)m->change;
  out->leaves = false;
  if (to[aci_start_rank(w)] < 0) return left(w, out);
  /* by the numbers of before, which the lines below replace */
  for (ac_group *g = w->groups; g != NULL; g = g->next) renumber(g, to);
  AC_TRY(take_all(w->all, m, to[aci_start_rank(w)], e));
  memcpy(w->seat, m->seat, sizeof w->seat);
  w->reseated = true;
  w->place.rank = out->rank = to[aci_start_rank(w)];
  w->place.size = out->size = m->n;
  w->generation = out->generation = m->number;
  w->next_group = m->next_group;
  w->watch = (aci_watchdog){.late_ns = w->watch.late_ns};
  aci_world_set_spins(w);
  out->committed = m->committed;
  out->seconds = m->seconds;
  memcpy(out->reason, m->reason, sizeof out->reason);
  return w->backend->reform(w, e);
}

ac_status ac_world_recover(ac_world *w, ac_membership *out, ac_err *e) {
  if (!ac_world_elastic(w))
    return AC_FAIL(e, STATE,
                   "recover: this job is not elastic; start it by accel-run --num-machines 1:1 "
                   "--nproc-per-node N");
  if (ac_world_aborted(w, e)) return w->abort_reason.code;
  uint32_t round = newest_round(w);
  if (round == w->round)
    return AC_FAIL(e, STATE, "recover: no rank was lost since generation %llu began",
                   (unsigned long long)w->generation);
  const aci_members *m = &w->segment.head->members;
  const int64_t began = aci_now_ns();
  uint8_t before[ACI_MAX_LOCAL];
  aci_queue_drain(w->queue); /* its works end with MEMBERSHIP */
  aci_wait_over(w);
  out->rank_before = w->place.rank;
  out->size_before = w->place.size;
  for (int r = 0; r < w->place.size; r++) before[r] = (uint8_t)aci_start_of(w, r);
  for (;; round = newest_round(w)) {
    w->page->next_group = w->next_group;
    w->page->holds_foreign = aci_heap_holds_foreign(w);
    atomic_store_explicit(&w->page->reported, round, memory_order_release);
    AC_TRY(wait_formed(w, round, began, e));
    /* it stays as it is until this rank reports again */
    if (atomic_load_explicit(&m->formed, memory_order_acquire) != round) continue;
    w->round = round;
    const ac_status st = aci_generation_adopt(w, before, out, e);
    if (st == AC_MEMBERSHIP) continue; /* a further loss while the links were made anew */
    if (st != AC_OK)                   /* the others would wait for it */
      aci_abort(w, st, w->place.rank, e != NULL ? e->msg : "a rank cannot continue");
    return st;
  }
}
