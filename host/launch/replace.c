/* Elastic jobs, on the side of the launcher: ranks that come and go between two updates
 * (comm/join.c is the side of a rank). Called by elastic.c at each turn.
 *
 * The job has a wanted number of ranks, at first that of its start. A lost rank is replaced: a new
 * process starts in its seat and observes. Once it is ready, the members are asked to a boundary
 * between two updates. When all of them wait there, the round in the segment rises, and elastic.c
 * forms the generation with the new rank as it does after a loss. `accel-run scale` changes the
 * wanted number, `accel-run leave` takes out one rank. A rank that ends before it has the state of
 * the job is dropped, whatever its exit status is. */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "accel/comm.h"
#include "launch/launch_impl.h"

#define MS ((int64_t)1000000)
enum { TRIES = 3, LOOK_MS = 2, LOOK_LATER_MS = 20 };

static aci_page *page_of(const aci_job *j, int r) { return aci_page_of(j->segment.head, r); }

void aci_replace_begin(aci_job *j) {
  aci_elastic *c = &j->elastic;
  c->wanted = c->n_order = j->n;
  for (int r = 0; r < j->n; r++) c->order[r] = (uint8_t)r;
}

/* Is it in the generation, alive or not? */
static bool in_order(const aci_job *j, int r) {
  for (int i = 0; i < j->elastic.n_order; i++)
    if (j->elastic.order[i] == r) return true;
  return false;
}

static bool is_member(const aci_job *j, int r) { return in_order(j, r) && !j->ranks[r].ended; }

/* ---- ends of guests ---- */
/* The others wait for a new rank in their collectives. They would end the job a little later. */
static int64_t limit_of(const aci_job *j) { return j->timeout / 5 * 4; }

void aci_replace_expire(aci_job *j) {
  const int64_t limit = limit_of(j);
  for (int r = 0; r < j->n && limit > 0; r++) {
    aci_rank *p = &j->ranks[r];
    if (!p->joins || p->ended || p->healing_at == 0 || p->ended_by != 0 ||
        aci_now_ns() - p->healing_at < limit ||
        atomic_load(&page_of(j, r)->joins) != ACI_JOIN_HEALING)
      continue;
    p->hangs = true;
    p->ended_by = SIGKILL;
    kill(p->pid, SIGKILL);
  }
}

bool aci_replace_ended(aci_job *j, int r) {
  aci_rank *p = &j->ranks[r];
  const bool member = in_order(j, r);
  char how[64], name[24];
  if (p->sig == 0 || p->hangs) p->tries = TRIES; /* its script ends it, and would end another one */
  if (p->hangs) snprintf(how, sizeof how, "was ended after %.3g s", (double)limit_of(j) / 1e9);
  else if (p->sig != 0)
    snprintf(how, sizeof how, "was killed by signal %d (%s)", p->sig,
             aci_signal_name(p->sig, name, sizeof name));
  else snprintf(how, sizeof how, "exited with status %d", p->code);
  snprintf(p->end, sizeof p->end, "the new rank %d (pid %d, %s) %s before it had the job's state",
           r, (int)p->pid, j->host, how);
  if (member) return true;
  p->joins = false;
  atomic_store(&page_of(j, r)->joins, ACI_JOIN_NONE);
  if (p->ended_by == 0 && j->failed < 0)
    aci_elastic_say(j, p->end,
                    p->tries < TRIES ? "another one starts" : "the job continues without it");
  return false;
}

/* ---- starting a rank ---- */
static void reset_page(aci_page *p) {
  atomic_store(&p->guard, 0);
  atomic_store(&p->stopped, 0);
  atomic_store(&p->waiting, 0);
  atomic_store(&p->prompt, 0);
  atomic_store(&p->phase, 0);
  atomic_store(&p->reported, 0);
  atomic_store(&p->at_boundary, 0);
  atomic_store(&p->stepped_at, 0);
  atomic_store(&p->step_ns, 0);
  atomic_store(&p->late_ns, 0);
  atomic_store(&p->doorbell_sleepers, 0);
  atomic_store(&p->loss, NAN);
  atomic_store(&p->tokens_per_s, NAN);
  p->holds_foreign = p->next_group = 0;
  p->exit_code = p->signal = 0;
  p->step = p->heap_span = p->heal_bytes = 0;
  p->at[0] = p->last[0] = 0;
  atomic_store(&p->joins, ACI_JOIN_STARTED);
  atomic_store(&p->state, ACI_ABSENT);
}

/* Whether a member uses memory in the heap of another rank, which a new rank would write over. */
static bool heaps_in_use(const aci_job *j) {
  for (int r = 0; r < j->n; r++)
    if (!j->ranks[r].ended && page_of(j, r)->holds_foreign != 0) return true;
  return false;
}

static void start(aci_job *j, int r) {
  aci_rank *p = &j->ranks[r];
  ac_err e;
  struct stat s;
  aci_rank_free(p);
  *p = (aci_rank){.out.fd = -1, .err.fd = -1, .log = -1, .ended = true, .tries = p->tries + 1};
  if (fstat(j->heaps[r], &s) == 0)
    fallocate(j->heaps[r], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, s.st_size);
  p->joins = true;
  reset_page(page_of(j, r));
  if (aci_rank_start(j, r, &e) == AC_OK) return;
  p->joins = false;
  p->tries = TRIES;
  atomic_store(&page_of(j, r)->joins, ACI_JOIN_NONE);
  ac_log_write(AC_LOG_WARN, "launch", "%s; the job continues without it", e.msg);
}

/* A seat without a process. -1: there is none, or no rank can be started in it. */
static int free_seat(aci_job *j) {
  for (int r = 0; r < j->n; r++)
    if (j->ranks[r].ended && j->ranks[r].tries < TRIES && !in_order(j, r)) {
      if (!heaps_in_use(j)) return r;
      j->ranks[r].tries = TRIES;
      ac_log_write(AC_LOG_WARN, "launch",
                   "rank %d is not replaced: the others share memory with each other, which a new "
                   "rank would have to have as well; the job continues without it",
                   r);
    }
  return -1;
}

/* ---- requests ---- */
static void take_requests(aci_job *j) {
  aci_elastic *c = &j->elastic;
  aci_members *m = &j->segment.head->members;
  const int n = (int)atomic_exchange(&m->want_ranks, 0),
            leave = (int)atomic_exchange(&m->want_leave, 0) - 1;
  int members = 0;
  for (int i = 0; i < c->n_order; i++)
    members += is_member(j, c->order[i]) && !j->ranks[c->order[i]].leaves;
  if (n > 0 && n <= j->n) {
    c->resizing = true;
    c->wanted = n;
    for (int r = 0; r < j->n; r++)
      if (j->ranks[r].ended) j->ranks[r].tries = 0;
    for (int i = c->n_order - 1; i >= 0 && members > n; i--) /* the last ones */
      if (is_member(j, c->order[i]) && !j->ranks[c->order[i]].leaves) {
        j->ranks[c->order[i]].leaves = true;
        members--;
      }
  }
  if (leave >= 0 && leave < j->n && is_member(j, leave) && !j->ranks[leave].leaves && members > 1) {
    j->ranks[leave].leaves = true;
    c->wanted = c->wanted > 1 ? c->wanted - 1 : 1;
  }
}

/* ---- turns ---- */
static void say_healed(aci_job *j, int r) {
  const aci_page *page = page_of(j, r);
  aci_rank *p = &j->ranks[r];
  char who[160], rest[80];
  p->joins = false;
  p->tries = 0;
  snprintf(who, sizeof who,
           "rank %d (pid %d, %s) joined with the state of the others (%.1f MiB in %.2f s)", r,
           (int)p->pid, j->host, (double)page->heal_bytes / 1048576.0, page->heal_seconds);
  snprintf(rest, sizeof rest, "generation %llu: %d ranks",
           (unsigned long long)j->elastic.generation, j->elastic.n_order);
  aci_elastic_say(j, who, rest);
}

/* Ends those that observe: nobody is left to join, or the job ends. */
static void end_observers(aci_job *j) {
  for (int r = 0; r < j->n; r++)
    if (j->ranks[r].joins && !j->ranks[r].ended && !is_member(j, r) && j->ranks[r].ended_by == 0) {
      j->ranks[r].ended_by = SIGKILL;
      kill(j->ranks[r].pid, SIGKILL);
    }
}

void aci_replace_turn(aci_job *j) {
  aci_elastic *c = &j->elastic;
  aci_members *m = &j->segment.head->members;
  int members = 0, staying = 0, joining = 0;
  bool ready = false, leaving = false, ends = j->signal != 0 || j->pipe_closed, all_wait = true;
  if (atomic_load(&j->segment.head->key_done) < (uint32_t)j->n) return;
  take_requests(j);
  for (int r = 0; r < j->n; r++) {
    const aci_rank *p = &j->ranks[r];
    const aci_page *page = page_of(j, r);
    const uint32_t state = atomic_load(&page->state), joins = atomic_load(&page->joins);
    if (p->joins && !p->ended && joins == ACI_JOIN_NONE) say_healed(j, r);
    if (p->joins && !p->ended && !is_member(j, r)) {
      joining++;
      ready |= joins == ACI_JOIN_READY;
    } else if (!p->ended && state == ACI_RUNNING && is_member(j, r)) {
      members++;
      staying += !p->leaves;
      leaving |= p->leaves;
      all_wait &= atomic_load(&page->at_boundary) != 0;
    } else if (state == ACI_LEFT && !p->leaves && !p->gone) {
      ends = true; /* the script is over */
    }
  }
  if (members == 0 || ends) {
    end_observers(j);
    if (members == 0 || j->signal != 0) return;
  }
  for (int r; !ends && staying + joining < c->wanted && (r = free_seat(j)) >= 0; joining++)
    start(j, r);
  if (ready || leaving) atomic_store(&m->asked, 1);
  if (!all_wait || atomic_load(&m->asked) == 0) return;
  c->pending = c->planned = true;
  c->began = aci_now_ns();
  c->first = c->order[0];
  c->text[0] = 0;
  atomic_fetch_add(&j->segment.head->abort_reason.round, 1);
  aci_futex_wake(&j->segment.head->abort_reason.round);
}

int64_t aci_replace_deadline(const aci_job *j) {
  const aci_members *m = &j->segment.head->members;
  bool soon = atomic_load(&m->asked) != 0, later = false;
  for (int r = 0; r < j->n; r++)
    if (j->ranks[r].joins && !j->ranks[r].ended) {
      later = true;
      soon |= is_member(j, r);
    }
  if (!soon && !later) return 0;
  return aci_now_ns() + (soon ? LOOK_MS : LOOK_LATER_MS) * MS;
}

/* ---- the members of a planned generation ---- */
int aci_replace_members(aci_job *j, int *seat, int n, uint64_t committed) {
  aci_elastic *c = &j->elastic;
  aci_members *m = &j->segment.head->members;
  int left = 0, k = 0, stay = 0, joined = 0;
  for (int i = 0; i < n; i++) stay += !j->ranks[seat[i]].leaves;
  for (int i = 0; i < n; i++) {
    aci_rank *p = &j->ranks[seat[i]];
    if (!p->leaves || stay == 0) {
      seat[k++] = seat[i];
      continue;
    }
    const size_t at = strlen(c->text);
    snprintf(c->text + at, sizeof c->text - at, "%srank %d (pid %d, %s) left as asked",
             at > 0 ? "; " : "", seat[i], (int)p->pid, j->host);
    p->leaves = false;
    p->gone = true;
    left++;
  }
  for (int r = 0; r < j->n; r++) {
    aci_page *page = page_of(j, r);
    if (!j->ranks[r].joins || j->ranks[r].ended || atomic_load(&page->joins) != ACI_JOIN_READY)
      continue;
    seat[k++] = r;
    joined++;
    atomic_store(&page->phase, committed > 0 ? committed << 2 | AC_PHASE_APPLIED : 0);
    atomic_store(&page->state, ACI_RUNNING);
  }
  m->change = (joined > 0 && left > 0) || (c->resizing && joined + left > 0) ? AC_CHANGE_RESIZED
              : joined > 0                                                   ? AC_CHANGE_JOINED
              : left > 0                                                     ? AC_CHANGE_LEFT
                                                                             : AC_CHANGE_NONE;
  if (n + joined - left == c->wanted) c->resizing = false;
  atomic_store(&m->asked, 0);
  return k;
}

void aci_replace_formed(aci_job *j, const int *seat, int n) {
  aci_elastic *c = &j->elastic;
  aci_members *m = &j->segment.head->members;
  memset(m->healing, 0, sizeof m->healing);
  c->n_order = n;
  for (int i = 0; i < n; i++) {
    c->order[i] = (uint8_t)seat[i];
    m->healing[seat[i]] = atomic_load(&page_of(j, seat[i])->joins) != ACI_JOIN_NONE;
  }
}

/* After `formed`: the new ranks leave their wait. */
void aci_replace_admit(aci_job *j) {
  for (int i = 0; i < j->elastic.n_order; i++) {
    aci_page *page = page_of(j, j->elastic.order[i]);
    uint32_t ready = ACI_JOIN_READY;
    j->ranks[j->elastic.order[i]].healing_at = aci_now_ns();
    if (atomic_compare_exchange_strong(&page->joins, &ready, ACI_JOIN_HEALING))
      aci_futex_wake(&page->joins);
  }
}
