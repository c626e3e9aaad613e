/* Services of a world for a prompt over ranks: a meeting, as a collective that cannot be confused
 * with another call, and a restart after an abort, when all ranks stand at the prompt again. Called
 * by bindings/attach/lac_ranks.c.
 *
 * A restart is three steps of all ranks, directed by the prompt: each resets (its works are over,
 * its words in the segment count from the start), then the abort reason is cleared, then each
 * continues. */
#include "comm/comm_impl.h"

ac_status aci_prompt_meet(ac_world *w, const char *site, ac_err *e) {
  AC_TRY(aci_aborted(w, e));
  aci_queue_drain(w->queue); /* queued work comes first on every rank */
  const ac_coll c = {.kind = AC_COLL_BARRIER, .site = site};
  aci_desc d;
  aci_desc_fill(w->all, &c, ++w->all->seq, &d);
  d.kind = AC_COLL_PROMPT;
  ac_comm_record *row = aci_record_begin(w, w->all, &c, w->all->seq, false);
  if (row != NULL) row->kind = AC_COLL_PROMPT;
  const ac_status st = w->backend->run(w->all, &c, &d, e);
  aci_record_end(w, row, st);
  return st;
}

ac_status aci_prompt_reset(ac_world *w, uint32_t *next_group, ac_err *e) {
  if (w->backend->reset == NULL)
    return AC_FAIL(e, UNSUPPORTED, "backend %s cannot restart", w->backend->name);
  aci_queue_drain(w->queue);
  w->all->seq = 0;
  for (ac_group *g = w->groups; g != NULL; g = g->next) g->seq = 0;
  AC_TRY(w->backend->reset(w, e));
  *next_group = w->next_group;
  return AC_OK;
}

void aci_prompt_resume(ac_world *w, uint32_t next_group) {
  w->next_group = next_group; /* a group that some have made and others have not keeps its number */
  w->watch = (aci_watchdog){0};
  aci_wait_over(w);
  atomic_store(&w->aborted, 0);
}
