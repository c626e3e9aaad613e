/* Elastic jobs, on the side of the launcher: ranks that are lost while the others continue
 * (comm/generation.c is the side of a rank). Called by supervise.c. What follows is the decision of a
 * machine that is alone. Several machines decide by their agents (agent/), which call parts of it.
 *
 * A rank that dies by a signal is lost: it has been collected, so it writes nothing any more. The
 * round in the segment rises, and the survivors leave their waits and report it. When all of them
 * have, the verdict follows from the phases on their pages:
 *
 *   some rank applies or has applied update u    u counts, and every rank applies it
 *   all ranks are prepared for u                 the same
 *   otherwise                                    the ranks do u again
 *
 * A rank applies u only after it has seen that all were prepared, so the phases of lost ranks add
 * nothing. The phases are set to the verdict, because a survivor may be lost before it has acted on
 * it. A Lua error, a signal that asks to stop, and a death before all ranks have joined end the job
 * as they end any job. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "accel/comm.h"
#include "launch/launch_impl.h"

#define MS ((int64_t)1000000)
enum { LOSSES_MOST = 3, STOP_GRACE_S = 10, LOOK_MS = 1, LOOK_LATER_MS = 10, LATER_MS = 2000 };

static aci_page *page_of(const aci_job *j, int r) { return aci_page_of(j->segment.head, r); }

void aci_elastic_begin(aci_job *j) {
  j->elastic = (aci_elastic){.generation = 1};
  j->segment.head->members.elastic = j->o->min_machines > 0;
  j->segment.head->members.launcher = j->resizes ? (int32_t)getpid() : 0;
  aci_replace_begin(j);
}

static bool asks_to_stop(int sig) {
  return sig == SIGINT || sig == SIGTERM || sig == SIGHUP || sig == SIGPIPE;
}

static bool is_loss(const aci_job *j, int r) {
  const aci_rank *p = &j->ranks[r];
  if (j->o->min_machines == 0 || p->sig == 0 || j->failed >= 0 || j->signal != 0 || j->pipe_closed)
    return false;
  if (p->expelled) return true;
  return p->ended_by == 0 && !asks_to_stop(p->sig) &&
         atomic_load(&j->segment.head->key_done) == (uint32_t)j->n &&
         atomic_load(&page_of(j, r)->state) != ACI_FAILED;
}

void aci_elastic_say(aci_job *j, const char *lost, const char *rest) {
  char line[2000];
  const int n = snprintf(line, sizeof line, "accel-run: %s; %s\n", lost, rest);
  aci_sink_put(j->one_sink ? &j->out : &j->err, line,
               n < (int)sizeof line ? (size_t)n : sizeof line - 1);
}

static bool finished(const aci_job *j, int r) {
  return atomic_load(&page_of(j, r)->state) == ACI_LEFT;
}

/* It made all its calls before it was killed, so the others need nothing from it. */
static bool is_late(aci_job *j, int r) {
  char text[600];
  bool others = false;
  for (int i = 0; i < j->n; i++)
    others |= i != r && (!j->ranks[i].ended || (finished(j, i) && j->ranks[i].sig == 0));
  if (!finished(j, r) || !others) return false;
  aci_root_cause_text(j, r, text, sizeof text);
  aci_elastic_say(j, text, "it had finished its script");
  return true;
}

static void note(aci_job *j, int r) {
  aci_elastic *c = &j->elastic;
  aci_rank *p = &j->ranks[r];
  char text[600];
  if (p->joins) snprintf(text, sizeof text, "%s", p->end);
  else if (p->expelled)
    snprintf(text, sizeof text, "rank %d (pid %d, %s) was stopped for %d s and expelled",
             j->first + r, (int)p->pid, j->host, STOP_GRACE_S);
  else aci_root_cause_text(j, r, text, sizeof text);
  const size_t n = strlen(c->text);
  snprintf(c->text + n, sizeof c->text - n, "%s%s", n > 0 ? "; " : "", text);
  c->counts |= !p->joins;
  if (!p->joins && !j->replaces && c->wanted > 1) c->wanted--;
  p->joins = false;
  p->lost = true;
  aci_page *page = page_of(j, r);
  page->exit_code = p->code;
  page->signal = p->sig;
  atomic_store(&page->joins, ACI_JOIN_NONE);
  atomic_store(&page->prompt, 0); /* nobody waits for its prompt any more */
  atomic_store(&page->state, ACI_DEAD);
}

int aci_elastic_take(aci_job *j, const int *ended, int n, int *rest) {
  aci_elastic *c = &j->elastic;
  int lost[ACI_MAX_LOCAL], n_lost = 0, n_rest = 0;
  bool lives = false;
  for (int i = 0; i < n; i++) {
    if (j->ranks[ended[i]].gone) { /* it has left, so that its end is its own */
      atomic_store(&page_of(j, ended[i])->state, ACI_LEFT);
    } else if (j->ranks[ended[i]].joins) {
      if (aci_replace_ended(j, ended[i]) && j->failed < 0) lost[n_lost++] = ended[i];
    } else if (!is_loss(j, ended[i])) rest[n_rest++] = ended[i];
    else if (!is_late(j, ended[i])) lost[n_lost++] = ended[i];
  }
  for (int r = 0; r < j->n; r++)
    lives |= !j->ranks[r].ended && !j->ranks[r].joins &&
             atomic_load(&page_of(j, r)->state) == ACI_RUNNING;
  if (n_lost == 0) return n_rest;
  if (!lives && j->agent == NULL) { /* nobody is left to continue */
    for (int i = 0; i < n_lost; i++) rest[n_rest++] = lost[i];
    return n_rest;
  }
  if (!c->pending || c->planned) { /* a planned change waits for the next boundary */
    c->pending = true;
    c->planned = c->counts = false;
    const aci_rank *p = &j->ranks[lost[0]];
    c->began = p->expelled && p->stopped_at != 0 ? p->stopped_at : aci_now_ns();
    c->first = lost[0];
    c->text[0] = 0;
  }
  size_t at = strlen(c->text);
  for (int i = 0; i < n_lost; i++) note(j, lost[i]);
  if (j->agent != NULL) { /* several machines decide together */
    at += at > 0 ? strlen("; ") : 0;
    const size_t end = strlen(c->text); /* a full text takes no more */
    aci_agent_lost(j, c->text + (at < end ? at : end), !lives);
    for (int i = 0; i < n_lost && !lives; i++) rest[n_rest++] = lost[i];
    return n_rest;
  }
  atomic_fetch_add(&j->segment.head->abort_reason.round, 1);
  aci_segment_wake(j->segment.head);
  return n_rest;
}

int aci_elastic_cause(const aci_job *j, int worst) {
  return j->elastic.pending && j->elastic.first >= 0 ? j->elastic.first : worst;
}

/* ---- the new generation ---- */
static bool in(const int *seat, int n, int r) {
  for (int i = 0; i < n; i++)
    if (seat[i] == r) return true;
  return false;
}

/* The last update that counts. *known: some rank published a phase. */
static uint64_t verdict(const aci_job *j, const int *seat, int n, bool *known) {
  uint64_t most = 0;
  bool prepared = true;
  for (int r = 0; r < j->n; r++) {
    const bool member = in(seat, n, r);
    if (!member && atomic_load(&page_of(j, r)->state) != ACI_LEFT) continue;
    const uint64_t phase = atomic_load(&page_of(j, r)->phase);
    if (phase > most) most = phase;
  }
  const uint64_t u = most >> 2, phase = most & 3;
  for (int i = 0; i < n; i++) prepared &= atomic_load(&page_of(j, seat[i])->phase) == most;
  *known = most != 0;
  if (phase >= AC_PHASE_APPLYING || (phase == AC_PHASE_PREPARED && prepared)) return u;
  return u > 0 ? u - 1 : 0;
}

void aci_elastic_set_phases(const aci_job *j, const int *seat, int n, uint64_t committed) {
  const uint64_t least = committed << 2 | AC_PHASE_APPLYING,
                 redo = (committed + 1) << 2 | AC_PHASE_BEGIN;
  for (int i = 0; i < n; i++) {
    _Atomic uint64_t *phase = &page_of(j, seat[i])->phase;
    if (committed > 0 && atomic_load(phase) < least) atomic_store(phase, least);
    if (atomic_load(phase) > redo) atomic_store(phase, redo);
  }
}

/* The memory of lost ranks. It stays if a survivor uses some of it. */
void aci_elastic_free_heaps(aci_job *j, const int *seat, int n) {
  struct stat s;
  bool used = false;
  for (int i = 0; i < n; i++) used |= page_of(j, seat[i])->holds_foreign != 0;
  for (int r = 0; r < j->n; r++) {
    if (!j->ranks[r].lost) continue;
    j->ranks[r].lost = false;
    if (!used && fstat(j->heaps[r], &s) == 0)
      fallocate(j->heaps[r], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, s.st_size);
  }
}

static void form(aci_job *j, int *seat, int n, uint32_t round) {
  aci_elastic *c = &j->elastic;
  aci_members *m = &j->segment.head->members;
  ac_err e;
  bool known;
  const uint64_t committed = verdict(j, seat, n, &known);
  if (!known || c->update != committed + 1) {
    c->update = committed + 1;
    c->losses = 0;
    c->first_at_update = c->first;
  }
  if (!c->planned && c->counts && ++c->losses >= LOSSES_MOST) {
    ac_log_write(AC_LOG_WARN, "launch",
                 "%d losses at update %llu end the job: its script or data is the likely reason",
                 c->losses, (unsigned long long)c->update);
    c->pending = false;
    aci_job_fail(j, c->first_at_update);
    return;
  }
  if (aci_segment_empty(&j->segment, &e) != AC_OK) {
    ac_log_write(AC_LOG_WARN, "launch", "%s", e.msg);
    c->pending = false;
    aci_job_fail(j, c->first);
    return;
  }
  aci_elastic_set_phases(j, seat, n, committed);
  aci_elastic_free_heaps(j, seat, n);
  m->change = AC_CHANGE_LOST;
  if (c->planned) n = aci_replace_members(j, seat, n, committed);
  aci_replace_formed(j, seat, n);
  m->number = ++c->generation;
  m->committed = committed;
  m->next_group = 0;
  m->n = n;
  for (int i = 0; i < n; i++) {
    m->seat[i] = (uint8_t)seat[i];
    if (page_of(j, seat[i])->next_group > m->next_group)
      m->next_group = page_of(j, seat[i])->next_group;
  }
  m->seconds = (double)(aci_now_ns() - c->began) / 1e9;
  snprintf(m->reason, sizeof m->reason, "%.511s", c->text);
  c->pending = c->planned = c->counts = false;
  atomic_store(&m->formed, round);
  aci_futex_wake(&m->formed);
  aci_replace_admit(j);
  if (c->text[0] == 0) return; /* only joins, which are reported when they are healed */
  char at[40] = "", rest[160];
  if (known) snprintf(at, sizeof at, " at update %llu", (unsigned long long)c->update);
  snprintf(rest, sizeof rest, "generation %llu: %d rank%s continue%s%s after %.2f s",
           (unsigned long long)c->generation, n, n == 1 ? "" : "s", n == 1 ? "s" : "", at,
           m->seconds);
  aci_elastic_say(j, c->text, rest);
}

/* ---- ranks that are stopped ---- */
static int64_t expelled_at(const aci_job *j, int r) {
  const aci_rank *p = &j->ranks[r];
  if (p->ended || p->stopped_at == 0 || p->expelled || atomic_load(&page_of(j, r)->prompt) != 0)
    return 0;
  return p->stopped_at + STOP_GRACE_S * 1000 * MS;
}

static void expel(aci_job *j) {
  for (int r = 0; r < j->n; r++) {
    const int64_t at = expelled_at(j, r);
    if (at == 0 || aci_now_ns() < at) continue;
    j->ranks[r].expelled = true;
    kill(j->ranks[r].pid, SIGKILL);
  }
}

int64_t aci_elastic_deadline(const aci_job *j) {
  if (j->o->min_machines == 0 || j->ranks == NULL || j->failed >= 0) return 0;
  const int64_t now = aci_now_ns();
  if (j->elastic.pending && j->agent == NULL)
    return now + (now - j->elastic.began < LATER_MS * MS ? LOOK_MS : LOOK_LATER_MS) * MS;
  int64_t first = j->agent != NULL ? aci_agent_deadline(j) : aci_replace_deadline(j);
  for (int r = 0; r < j->n; r++) {
    const int64_t at = expelled_at(j, r);
    if (at != 0 && (first == 0 || at < first)) first = at;
  }
  return first;
}

void aci_elastic_turn(aci_job *j) {
  if (j->o->min_machines == 0 || j->ranks == NULL || j->failed >= 0) return;
  expel(j);
  if (j->agent != NULL) return;
  aci_replace_expire(j);
  if (!j->elastic.pending) aci_replace_turn(j);
  if (!j->elastic.pending) return;
  const uint32_t round = atomic_load(&j->segment.head->abort_reason.round);
  int seat[ACI_MAX_LOCAL], n = 0;
  for (int i = 0; i < j->elastic.n_order; i++) {
    const int r = j->elastic.order[i];
    const uint32_t state = atomic_load(&page_of(j, r)->state);
    if (j->ranks[r].ended || state == ACI_LEFT) continue;
    /* one that is not running is about to be collected */
    if (state != ACI_RUNNING || atomic_load(&page_of(j, r)->reported) != round) return;
    seat[n++] = r;
  }
  if (n > 0) {
    form(j, seat, n, round);
    if (!j->elastic.pending && j->failed < 0)
      aci_replace_turn(j); /* who takes the place of the lost */
    return;
  }
  j->elastic.pending = j->elastic.planned = false;
  aci_elastic_say(j, j->elastic.text, "the other ranks finished without it");
}
