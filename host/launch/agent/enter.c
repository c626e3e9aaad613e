/* A change of the generation, on one machine: its ranks leave their calls and report, and after the
 * decision they enter the record. Called by agent.c. elastic.c does the same for a machine that is
 * alone, and serves both with its phases and memory. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "accel/comm.h"
#include "launch/agent/agent.h"

#define MS ((int64_t)1000000)
enum { LOSSES_MOST = 3, GROUPS_OF_GENERATION = 16 /* bits of the ids of its groups */ };

static aci_page *page_of(const aci_agent *a, int r) { return aci_page_of(a->j->segment.head, r); }

/* Every agent comes to this end by itself. */
static void end_job(aci_agent *a, const char *text) {
  a->failed = true;
  snprintf(a->end, sizeof a->end, "%s", text);
  a->end_status = 1;
  aci_abort_segment(a->j->segment.head, AC_PEER, -1, text);
  if (a->j->term_at == 0 && a->j->kill_at == 0) a->j->term_at = aci_now_ns() + 500 * MS;
}

/* ---- the report ---- */
void aci_agent_drain(aci_agent *a) {
  aci_job *j = a->j;
  if (j->segment.head == NULL || a->finished) {
    a->draining = true;
    return;
  }
  if (atomic_load(&j->segment.head->key_done) != (uint32_t)j->n) {
    /* ranks that meet cannot leave that */
    static const char text[] = "a machine was lost before all ranks had joined";
    aci_agent_failed(j, -1, text);
    end_job(a, text);
    return;
  }
  if (!j->elastic.pending) {
    j->elastic.pending = true;
    j->elastic.began = aci_now_ns();
    j->elastic.first = -1;
    j->elastic.text[0] = 0;
  }
  a->draining = true;
  atomic_fetch_add(&j->segment.head->abort_reason.round, 1);
  aci_segment_wake(j->segment.head);
}

static uint64_t prepared(uint64_t phase) {
  const uint64_t u = phase >> 2;
  return (phase & 3) >= AC_PHASE_PREPARED || u == 0 ? u : u - 1;
}

static uint64_t applied(uint64_t phase) {
  const uint64_t u = phase >> 2;
  return (phase & 3) >= AC_PHASE_APPLYING || u == 0 ? u : u - 1;
}

void aci_agent_look(aci_agent *a) {
  aci_job *j = a->j;
  if (!a->draining) return;
  uint64_t least = UINT64_MAX, most = 0, living = 0;
  if (!a->finished && j->segment.head != NULL && j->ranks != NULL) {
    const uint32_t round = atomic_load(&j->segment.head->abort_reason.round);
    for (int r = 0; r < j->n; r++) {
      const uint32_t state = atomic_load(&page_of(a, r)->state);
      const uint64_t phase = atomic_load(&page_of(a, r)->phase);
      if (state == ACI_LEFT && applied(phase) > most) most = applied(phase);
      if (j->ranks[r].ended || state == ACI_LEFT) continue;
      if (state != ACI_RUNNING || atomic_load(&page_of(a, r)->reported) != round) return;
      if (applied(phase) > most) most = applied(phase);
      if (prepared(phase) < least) least = prepared(phase);
      living |= UINT64_C(1) << r;
    }
  }
  a->draining = false;
  aci_member_drained(&a->member, aci_agent_now(), most, living != 0 ? least : most, living);
}

/* ---- the new members ---- */
static const aci_machine *in(const aci_record *r, uint64_t uid) {
  for (uint32_t i = 0; i < r->n; i++)
    if (r->machine[i].uid == uid) return &r->machine[i];
  return NULL;
}

static void append(char *text, size_t n, const char *more) {
  const size_t at = strlen(text);
  snprintf(text + at, n - at, "%s%s", at > 0 ? "; " : "", more);
}

/* Machines that are gone without a word. Lost ranks have been named by their own agents. */
static void name_silent(aci_agent *a, const aci_record *next) {
  aci_elastic *c = &a->j->elastic;
  char line[160], host[64];
  for (uint32_t i = 0; i < a->entered.n; i++) {
    const aci_machine *m = &a->entered.machine[i];
    const aci_agent_machine *t = aci_agent_find(a, m->uid);
    if (in(next, m->uid) != NULL || (t != NULL && (t->done || t->lost))) continue;
    aci_agent_host(a, m, host, sizeof host);
    const double s = (double)a->member.o.silence / 1000;
    snprintf(line, sizeof line, "machine %u (%s) has been silent for %.1f s", (unsigned)m->id, host,
             s);
    append(c->text, sizeof c->text, line);
    if (aci_now_ns() - c->began < (int64_t)a->member.o.silence * MS)
      c->began -= (int64_t)a->member.o.silence * MS;
  }
}

static int count(const aci_record *r) {
  int n = 0;
  for (uint32_t i = 0; i < r->n; i++) n += __builtin_popcountll(r->machine[i].ranks);
  return n;
}

/* The same count on every machine, as all enter the same records. */
static bool too_many_losses(aci_agent *a, const aci_record *next, bool known) {
  aci_elastic *c = &a->j->elastic;
  char text[700];
  if (count(next) >= count(&a->entered)) return false;
  if (!known || c->update != next->committed + 1) {
    c->update = next->committed + 1;
    c->losses = 0;
  }
  if (++c->losses < LOSSES_MOST) return false;
  snprintf(
      text, sizeof text,
      "%d losses at update %llu end the job: its script or data is the likely reason; the last: %.500s",
      c->losses, (unsigned long long)c->update, c->text);
  end_job(a, text);
  return true;
}

static void say(aci_agent *a, const aci_record *next, bool known) {
  aci_elastic *c = &a->j->elastic;
  char at[40] = "", rest[240];
  const int n = count(next);
  if (known) snprintf(at, sizeof at, " at update %llu", (unsigned long long)next->committed + 1);
  snprintf(rest, sizeof rest,
           "generation %llu: %d rank%s on %u machine%s continue%s%s after %.2f s",
           (unsigned long long)next->number, n, n == 1 ? "" : "s", (unsigned)next->n,
           next->n == 1 ? "" : "s", n == 1 ? "s" : "", at, (double)(aci_now_ns() - c->began) / 1e9);
  aci_elastic_say(a->j, c->text[0] != 0 ? c->text : "all machines are heard again", rest);
}

/* Numbers at the start of the record's ranks, in their order. */
static int fill_seats(const aci_agent *a, const aci_record *next, uint8_t *seat) {
  int n = 0;
  for (uint32_t i = 0; i < next->n; i++) {
    const aci_agent_machine *t = aci_agent_find(a, next->machine[i].uid);
    for (int r = 0; t != NULL && r < t->n; r++)
      if (next->machine[i].ranks >> r & 1) seat[n++] = (uint8_t)(t->first + r);
  }
  return n;
}

void aci_agent_enter(aci_agent *a) {
  aci_job *j = a->j;
  aci_elastic *c = &j->elastic;
  const aci_record *next = &a->member.record;
  const aci_machine *own = in(next, a->own.uid);
  const uint64_t now = aci_agent_now();
  if (a->member.state != ACI_MEMBER_ENTERING || own == NULL) return;
  if (next->number == 1 || j->segment.head == NULL) {
    aci_record_copy(&a->entered, next);
    aci_member_entered(&a->member, now);
    return;
  }
  aci_members *m = &j->segment.head->members;
  const uint32_t round = atomic_load(&j->segment.head->abort_reason.round);
  int local[ACI_MAX_LOCAL], n = 0;
  bool known = false;
  for (int r = 0; r < j->n; r++) {
    if ((own->ranks >> r & 1) == 0) continue;
    local[n++] = r;
    known |= atomic_load(&page_of(a, r)->phase) != 0;
  }
  name_silent(a, next);
  ac_err e;
  if (too_many_losses(a, next, known)) return;
  if (aci_segment_empty(&j->segment, &e) != AC_OK) {
    end_job(a, e.msg);
    return;
  }
  aci_elastic_set_phases(j, local, n, next->committed);
  aci_elastic_free_heaps(j, local, n);
  m->number = c->generation = next->number;
  m->committed = next->committed;
  m->change = AC_CHANGE_LOST;
  /* Ids of groups must be equal on all machines: each generation has its own range of them */
  m->next_group = (uint32_t)(next->number << GROUPS_OF_GENERATION);
  m->n = fill_seats(a, next, m->seat);
  m->seconds = (double)(aci_now_ns() - c->began) / 1e9;
  snprintf(m->reason, sizeof m->reason, "%.511s", c->text);
  if (next->machine[0].uid == a->own.uid) say(a, next, known);
  c->pending = false;
  c->text[0] = 0;
  aci_record_copy(&a->entered, next);
  atomic_store(&m->formed, round);
  aci_futex_wake(&m->formed);
  aci_member_entered(&a->member, now);
  a->silent_since = a->paused_at = 0;
  a->told_pause = false;
  if (!a->again) return;
  a->again = false;
  aci_member_change(&a->member, now, false);
}

/* ---- the pause ---- */
static int silent(const aci_agent *a, char *names, size_t n) {
  int k = 0;
  const uint64_t now = aci_agent_now();
  char host[64];
  names[0] = 0;
  for (int i = 0; i < (int)a->member.record.n; i++) {
    const aci_member_peer *p = &a->member.peer[i];
    if (i == a->member.self || (!p->dead && now < p->heard_at + a->member.o.silence)) continue;
    const size_t at = strlen(names);
    snprintf(names + at, n - at, "%s%s", k++ > 0 ? ", " : "",
             aci_agent_host(a, &a->member.record.machine[i], host, sizeof host));
  }
  return k;
}

void aci_agent_pause(aci_agent *a) {
  aci_job *j = a->j;
  const int64_t now = aci_now_ns();
  char names[200], line[600];
  if (a->member.state != ACI_MEMBER_DRAINED || j->failed >= 0 || a->failed) {
    a->silent_since = 0;
    return;
  }
  const int n = silent(a, names, sizeof names), all = (int)a->member.record.n;
  const bool few = all - n < (int)a->member.o.min, split = (all - n) * 2 <= all;
  if (!few && !split) {
    a->silent_since = 0;
    return;
  }
  if (a->silent_since == 0) a->silent_since = now;
  if (!a->told_pause && now - a->silent_since > (int64_t)a->member.o.silence * MS) {
    a->told_pause = true;
    a->paused_at = now;
    snprintf(line, sizeof line, "paused at update %llu: %d of %d machines %s silent (%s)",
             (unsigned long long)a->member.applied + 1, n, all, n == 1 ? "is" : "are", names);
    char rest[200];
    if (few)
      snprintf(rest, sizeof rest,
               "at least %u machines must take part; the job waits %.0f s for them",
               (unsigned)a->member.o.min, j->o->wait_machines);
    else
      snprintf(rest, sizeof rest,
               "the others may run on; the job waits %.0f s for more than half of the machines",
               j->o->wait_machines);
    aci_elastic_say(j, line, rest);
  }
  if (a->told_pause && (double)(now - a->paused_at) / 1e9 > j->o->wait_machines) {
    snprintf(line, sizeof line, "waited %.0f s for %s", j->o->wait_machines, names);
    end_job(a, line);
    a->end_status = AC_EXIT_REQUEUE;
  }
}
