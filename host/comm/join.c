/* Ranks that come and go between two updates of an elastic job, on their own side. Called by
 * bindings/comm/lac_membership.c and by C programs. The launcher's side is launch/replace.c.
 *
 * The launcher starts a process in the place of a lost rank. That rank observes: it runs the script
 * from its start in a world that nobody else is in, and says on its page when it is ready. The
 * members see that the launcher asks for a change, agree on a boundary between two updates, and wait
 * there. Once all have come, no call is under way, and the launcher forms the generation with the
 * observer as it does after a loss (generation.c). A rank that leaves goes the same way.
 *
 * A guest is a rank that observes, or that is a member without the state of the job. Whatever happens
 * to it ends it alone. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/shm/shm.h"
#include "comm/wait.h"

enum { NAP = 10000000 };

bool ac_world_observes(const ac_world *w) { return w->observes; }
void ac_world_preamble(ac_world *w, bool on) { w->preamble = on; }

int ac_world_start_size(const ac_world *w) {
  return w->segment.head != NULL && w->generation != 0 ? (int)w->segment.head->n_ranks
                                                       : w->place.size;
}

/* The launcher looks at the pages when a child is said to have changed. */
static void wake_launcher(const aci_head *h) {
  if (h->members.launcher > 0) kill(h->members.launcher, SIGCHLD);
}

/* ---- observing ---- */

/* It is the last of the ranks, so that it takes no part of the main process. Its seat stays the index
 * of its page and heap. */
void aci_observe(ac_world *w) {
  const int last = w->place.size - 1;
  w->observes = w->reseated = true;
  for (int i = 0; i < w->place.size; i++) w->seat[i] = (uint8_t)i;
  w->seat[w->place.local_rank] = (uint8_t)last;
  w->seat[last] = (uint8_t)w->place.local_rank;
  w->place.rank = last;
}

/* What the ranks of the start compare when they join must be as it was then (shm.c). */
static ac_status compare(const ac_world *w, ac_err *e) {
  for (int i = 0; i < w->place.local_size; i++) {
    aci_page p;
    if (i == w->place.local_rank) continue;
    aci_page_read(aci_page_of(w->segment.head, i), &p);
    if (atomic_load(&p.joins) != ACI_JOIN_NONE || atomic_load(&p.state) != ACI_RUNNING) continue;
    if (strcmp(p.version, w->version) != 0)
      return AC_FAIL(
          e, MISMATCH,
          "refused a new rank: accel was replaced since the job started: it runs %s, the "
          "new rank %s",
          p.version, w->version);
    if (p.script_hash != 0 && w->script_hash != 0 && p.script_hash != w->script_hash)
      return AC_FAIL(e, MISMATCH,
                     "refused a new rank: %s has changed since the job started; put back its old "
                     "contents, or start the job again",
                     w->script);
  }
  return AC_OK;
}

static ac_status observer_join(ac_world *w, ac_err *e) {
  AC_TRY(compare(w, e));
  w->impl = aci_shm_pairs_new(w->place.local_size);
  if (w->impl == NULL) return AC_FAIL(e, OOM, "no memory for the backend's tables");
  w->page->tid = (int32_t)syscall(SYS_gettid);
  return AC_OK;
}

static void observer_leave(ac_world *w, const char *site) {
  if (site != NULL) aci_page_set_at(w->page, site, w->page->step);
  aci_shm_pairs_free(w->impl);
  w->impl = NULL;
}

static ac_status refuse(const aci_desc *d, ac_err *e) {
  char what[160];
  return AC_FAIL(
      e, UNSUPPORTED,
      "%s: this rank replaces a lost one and runs the script alone until the first batch "
      "of the loader that trains; make the call behind that, or start the job with "
      "--replace no",
      aci_desc_text(d, what, sizeof what));
}

static ac_status observer_run(ac_group *g, const ac_coll *c, aci_desc *d, ac_err *e) {
  AC_TRY(aci_aborted(g->world, e));
  if (c->kind == AC_COLL_BARRIER && d->kind != AC_COLL_NEW_GROUP) return AC_OK;
  if (!g->world->preamble) return refuse(d, e);
  switch (d->kind) {
    case AC_COLL_BROADCAST: return AC_OK;
    case AC_COLL_ALL_GATHER: {
      const size_t size = ac_dtype_bytes(c->dtype), bytes = (size_t)aci_part(c, g->rank) * size;
      for (int r = 0; r < g->size; r++) {
        if ((size_t)aci_part(c, r) * size != bytes) return refuse(d, e);
        memmove((char *)c->recv + (size_t)aci_part_at(c, r) * size, c->send, bytes);
      }
      return AC_OK;
    }
    default: return refuse(d, e);
  }
}

static ac_status observer_send_recv(ac_group *g, const ac_coll *c, aci_desc *d, void **state,
                                    bool *done, ac_err *e) {
  (void)g, (void)c, (void)state;
  if (*done) return AC_OK;
  *done = true;
  return refuse(d, e);
}

const aci_backend aci_observer_backend = {
    .struct_size = sizeof(aci_backend),
    .name = "shm",
    .join = observer_join,
    .leave = observer_leave,
    .run = observer_run,
    .send_recv = observer_send_recv,
    .reform = observer_join, /* replaced before the first generation */
};

/* ---- joining ---- */
ac_status ac_world_join(ac_world *w, ac_membership *out, ac_err *e) {
  if (!w->observes) return AC_FAIL(e, STATE, "join: this rank is a member already");
  aci_queue_drain(w->queue);
  atomic_store(&w->page->joins, ACI_JOIN_READY);
  wake_launcher(w->segment.head);
  while (atomic_load_explicit(&w->page->joins, memory_order_acquire) == ACI_JOIN_READY) {
    if (ac_world_aborted(w, e)) return w->abort_reason.code;
    const int64_t at = w->interrupt != NULL ? __atomic_load_n(w->interrupt, __ATOMIC_RELAXED) : 0;
    if (at != 0 && aci_now_ns() >= at)
      return AC_FAIL(e, INTERRUPTED, "this rank was interrupted before it joined");
    aci_futex_wait(&w->page->joins, ACI_JOIN_READY, NAP);
  }
  /* it is a member: the next generation is not formed without it */
  const aci_members *m = &w->segment.head->members;
  const uint32_t round = atomic_load_explicit(&m->formed, memory_order_acquire);
  w->backend = &aci_shm_backend;
  out->rank_before = -1;
  out->size_before = 0;
  AC_TRY(aci_generation_adopt(w, NULL, out, e));
  w->observes = false;
  w->round = round;
  return AC_OK;
}

void ac_world_healed(ac_world *w, uint64_t bytes, double seconds) {
  if (!aci_is_guest(w)) return;
  w->page->heal_bytes = bytes;
  w->page->heal_seconds = seconds;
  atomic_store(&w->page->joins, ACI_JOIN_NONE);
  wake_launcher(w->segment.head);
}

/* ---- planned changes ---- */
bool ac_world_asked(const ac_world *w) {
  return w->generation != 0 &&
         atomic_load_explicit(&w->segment.head->members.asked, memory_order_relaxed) != 0;
}

ac_status ac_world_meet_change(ac_world *w, ac_membership *out, ac_err *e) {
  if (!ac_world_elastic(w)) return AC_FAIL(e, STATE, "change: this job is not elastic");
  _Atomic uint32_t *round = &w->segment.head->abort_reason.round;
  aci_queue_drain(w->queue);
  atomic_store(&w->page->at_boundary, 1);
  wake_launcher(w->segment.head);
  ac_status st = AC_OK;
  while (atomic_load_explicit(round, memory_order_acquire) == w->round && st == AC_OK) {
    if (ac_world_aborted(w, e)) st = w->abort_reason.code;
    const int64_t at = w->interrupt != NULL ? __atomic_load_n(w->interrupt, __ATOMIC_RELAXED) : 0;
    if (st == AC_OK && at != 0 && aci_now_ns() >= at)
      st = aci_stop(w, AC_INTERRUPTED, w->place.rank, e,
                    "rank %d was interrupted between two updates", w->place.rank);
    if (st == AC_OK) aci_futex_wait(round, w->round, NAP);
  }
  atomic_store(&w->page->at_boundary, 0);
  return st == AC_OK ? ac_world_recover(w, out, e) : st;
}

static ac_status ask(aci_head *h, _Atomic uint32_t *word, int value, ac_err *e) {
  if (h->members.elastic == 0 || h->members.launcher == 0)
    return AC_FAIL(e, STATE,
                   "this job cannot change its ranks on request; start it by accel-run "
                   "--num-machines 1:1 --nproc-per-node N, with the backend shm");
  atomic_store(word, (uint32_t)value);
  wake_launcher(h);
  return AC_OK;
}

ac_status aci_ask_ranks(aci_head *h, int n, ac_err *e) {
  if (n < 1 || n > (int)h->n_ranks)
    return AC_FAIL(e, INVALID, "%d ranks: choose 1 to %u, the number with which the job started", n,
                   h->n_ranks);
  return ask(h, &h->members.want_ranks, n, e);
}

ac_status aci_ask_leave(aci_head *h, int seat, ac_err *e) {
  int running = 0;
  for (int i = 0; i < (int)h->n_ranks; i++)
    running += atomic_load(&aci_page_of(h, i)->state) == ACI_RUNNING;
  if (seat < 0 || seat >= (int)h->n_ranks ||
      atomic_load(&aci_page_of(h, seat)->state) != ACI_RUNNING)
    return AC_FAIL(e, INVALID, "rank %d is not running; accel-run top shows the ranks", seat);
  if (running < 2) return AC_FAIL(e, INVALID, "rank %d is the last one", seat);
  return ask(h, &h->members.want_leave, 1 + seat, e);
}

ac_status ac_world_ask_ranks(ac_world *w, int n, ac_err *e) {
  if (w->generation == 0) return AC_FAIL(e, STATE, "this job is not elastic");
  return aci_ask_ranks(w->segment.head, n, e);
}

ac_status ac_world_ask_leave(ac_world *w, int r, ac_err *e) {
  if (w->generation == 0) return AC_FAIL(e, STATE, "this job is not elastic");
  return aci_ask_leave(w->segment.head, r >= 0 && r < w->place.size ? aci_seat_of(w, r) : -1, e);
}
