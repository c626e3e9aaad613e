/* The agent of one machine of an elastic job: it meets the others, passes on what happens, and ends
 * when the job does. Called by launch.c, supervise.c and elastic.c. See agent.h. */
#include "launch/agent/agent.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS ((int64_t)1000000)
enum { LOOK_MS = 1, TELL_MS = 100, GRACE_MS = 500, LINGER_MS = 300 };

_Static_assert((int)ACI_NET_POLLS <= (int)ACI_AGENT_POLLS, "supervise.c has room for them");

typedef struct lost_body {
  int32_t all; /* ranks of the sender */
  char text[600];
} lost_body;

typedef struct fail_body {
  int32_t rank;
  char text[512];
} fail_body;

const aci_agent_machine *aci_agent_find(const aci_agent *a, uint64_t uid) {
  for (int i = 0; i < a->n_machines; i++)
    if (a->machine[i].uid == uid) return &a->machine[i];
  return NULL;
}

static aci_agent_machine *machine_of(aci_agent *a, uint64_t uid) {
  for (int i = 0; i < a->n_machines; i++)
    if (a->machine[i].uid == uid) return &a->machine[i];
  return NULL;
}

const char *aci_agent_host(const aci_agent *a, const aci_machine *m, char *buf, size_t n) {
  const aci_net_hello *h = aci_net_who(a->net, m->uid);
  if (h != NULL && h->host[0] != 0) snprintf(buf, n, "%s", h->host);
  else snprintf(buf, n, "machine %u", (unsigned)m->id);
  return buf;
}

/* ---- callbacks of the core ---- */
static void keep_for_self(aci_agent *a, const unsigned char *bytes, size_t n) {
  const uint32_t size = (uint32_t)n;
  if (a->n_self + sizeof size + n > a->self_room) {
    const size_t room = (a->n_self + sizeof size + n) * 2;
    unsigned char *more = realloc(a->self, room);
    if (more == NULL) return; /* as if it were lost on the way */
    a->self = more;
    a->self_room = room;
  }
  memcpy(a->self + a->n_self, &size, sizeof size);
  memcpy(a->self + a->n_self + sizeof size, bytes, n);
  a->n_self += sizeof size + n;
}

void aci_agent_send(void *user, uint64_t to, const aci_member_msg *msg) {
  aci_agent *a = user;
  static unsigned char bytes[ACI_NET_FRAME];
  const size_t n = aci_member_pack(msg, bytes);
  const int seed = (to & ACI_MEMBER_SEED) != 0 ? (int)(to & ~ACI_MEMBER_SEED) : -1;
  if (to == a->own.uid || (seed >= 0 && seed == a->own.seed)) keep_for_self(a, bytes, n);
  else aci_net_send(a->net, to, seed, ACI_FRAME_MEMBER, bytes, n);
}

void aci_agent_queue(void *user, aci_member_act act, const aci_record *record) {
  aci_agent *a = user;
  (void)record; /* it is in the core */
  if (a->n_acts < ACI_AGENT_ACTS) a->acts[a->n_acts++] = act;
}

/* ---- what the core decided ---- */
static void kill_ranks(aci_agent *a) {
  aci_job *j = a->j;
  for (int r = 0; r < j->n && j->ranks != NULL; r++) {
    if (j->ranks[r].ended) continue;
    j->ranks[r].ended_by = SIGKILL;
    kill(j->ranks[r].pid, SIGKILL);
  }
}

static void expelled(aci_agent *a) {
  if (a->finished || a->out) return;
  a->out = a->failed = true;
  a->end_status = 1;
  snprintf(
      a->end, sizeof a->end,
      "this machine (%s) was silent for too long; generation %llu continues without it, and its "
      "ranks were ended",
      a->own.host, (unsigned long long)a->member.record.number);
  if (a->j->segment.head != NULL) aci_abort_segment(a->j->segment.head, AC_PEER, -1, a->end);
  kill_ranks(a);
}

static void carry_out(aci_agent *a, aci_member_act act) {
  switch (act) {
    case ACI_MEMBER_DRAIN: aci_agent_drain(a); break;
    case ACI_MEMBER_ENTER: aci_agent_enter(a); break;
    case ACI_MEMBER_EXPELLED: expelled(a); break;
    default: break; /* planned changes are not made yet, a pause is seen by aci_agent_pause */
  }
}

void aci_agent_pump(aci_agent *a) {
  while (a->n_self > 0 || a->n_acts > 0) {
    if (a->n_acts > 0) {
      const aci_member_act act = a->acts[0];
      memmove(a->acts, a->acts + 1, (size_t)--a->n_acts * sizeof a->acts[0]);
      carry_out(a, act);
      continue;
    }
    uint32_t n;
    aci_member_msg msg;
    memcpy(&n, a->self, sizeof n);
    const bool ok = aci_member_unpack(a->self + sizeof n, n, &msg, &a->got);
    a->n_self -= sizeof n + n;
    memmove(a->self, a->self + sizeof n + n, a->n_self);
    if (ok) aci_member_receive(&a->member, aci_agent_now(), &msg);
  }
}

/* ---- messages of other agents ---- */
/* The others change the generation, and nobody is left here: a vote is all that they need. */
static void only_vote(aci_agent *a, const aci_member_msg *msg) {
  static unsigned char bytes[ACI_NET_FRAME];
  aci_member_msg answer;
  if (msg->kind == ACI_MEMBER_RECORD) aci_acceptor_learn(&a->page, msg->record);
  if (msg->kind != ACI_MEMBER_PREPARE && msg->kind != ACI_MEMBER_ACCEPT) return;
  if (!aci_acceptor_answer(&a->page, msg, &answer)) return;
  answer.from = a->own.uid;
  answer.seed = (int16_t)a->own.seed;
  for (uint32_t i = 0; i < a->member.record.n; i++)
    if (a->member.record.machine[i].uid == a->own.uid) answer.id = a->member.record.machine[i].id;
  aci_net_send(a->net, msg->from, -1, ACI_FRAME_MEMBER, bytes, aci_member_pack(&answer, bytes));
}

static void take_member(aci_agent *a, uint64_t from, const void *body, size_t n) {
  aci_member_msg msg;
  if (!aci_member_unpack(body, n, &msg, &a->got)) return;
  msg.from = from;
  if (msg.kind == ACI_MEMBER_DEAD) msg.uid = from;
  if (a->votes_only) only_vote(a, &msg);
  else aci_member_receive(&a->member, aci_agent_now(), &msg);
}

static void take_lost(aci_agent *a, uint64_t from, const void *body, size_t n) {
  lost_body b;
  aci_agent_machine *m = machine_of(a, from);
  if (n != sizeof b || m == NULL) return;
  memcpy(&b, body, sizeof b);
  aci_text_clean(b.text, sizeof b.text);
  aci_elastic *c = &a->j->elastic;
  if (!c->pending) {
    c->pending = true;
    c->began = aci_now_ns();
    c->first = -1;
    c->text[0] = 0;
  }
  const size_t at = strlen(c->text);
  snprintf(c->text + at, sizeof c->text - at, "%s%s", at > 0 ? "; " : "", b.text);
  m->lost |= b.all != 0;
}

static void take_fail(aci_agent *a, const void *body, size_t n) {
  fail_body b;
  aci_job *j = a->j;
  if (n != sizeof b || a->failed || a->finished) return;
  memcpy(&b, body, sizeof b);
  aci_text_clean(b.text, sizeof b.text);
  a->failed = true;
  if (j->segment.head == NULL) return;
  char text[sizeof b.text + 16];
  snprintf(text, sizeof text, "%s%s",
           strncmp(b.text, "stopped: ", 9) == 0 ? "" : "stopped: ", b.text);
  const int rank = b.rank >= 0 && b.rank < j->world ? b.rank : -1;
  aci_abort_segment(j->segment.head, AC_PEER, rank, text);
  if (j->term_at == 0 && j->kill_at == 0) j->term_at = aci_now_ns() + GRACE_MS * MS;
}

void aci_agent_take(void *user, uint64_t from, aci_frame type, const void *body, size_t n) {
  aci_agent *a = user;
  aci_agent_machine *m = machine_of(a, from);
  switch (type) {
    case ACI_FRAME_MEMBER: take_member(a, from, body, n); break;
    case ACI_FRAME_LOST: take_lost(a, from, body, n); break;
    case ACI_FRAME_FAIL: take_fail(a, body, n); break;
    case ACI_FRAME_DONE:
      if (m != NULL) m->done = true;
      break;
    default: break; /* of a later version */
  }
}

/* ---- events of this machine ---- */
void aci_agent_lost(aci_job *j, const char *text, bool all) {
  aci_agent *a = j->agent;
  lost_body b = {.all = all};
  snprintf(b.text, sizeof b.text, "%s", text);
  aci_net_tell_all(a->net, ACI_FRAME_LOST, &b, sizeof b);
  if (all) {
    a->out = a->failed = true;
    a->finished = true;
  }
  if (a->member.state == ACI_MEMBER_DRAINED) { /* it counts as living in the report */
    a->again = true;
    return;
  }
  if (a->member.state == ACI_MEMBER_DRAINING) aci_agent_drain(a);
  else aci_member_change(&a->member, aci_agent_now(), false);
  aci_agent_pump(a);
}

void aci_agent_failed(aci_job *j, int rank, const char *text) {
  aci_agent *a = j->agent;
  if (a == NULL || a->failed) return;
  a->failed = true;
  fail_body b = {.rank = rank};
  snprintf(b.text, sizeof b.text, "%s", text);
  aci_net_tell_all(a->net, ACI_FRAME_FAIL, &b, sizeof b);
}

static void turn(aci_agent *a) {
  if (!a->votes_only) aci_member_tick(&a->member, aci_agent_now());
  aci_agent_pump(a);
  aci_agent_look(a);
  aci_agent_pump(a);
  aci_agent_pause(a);
  aci_agent_pump(a);
}

void aci_agent_serve(aci_job *j) {
  aci_agent *a = j->agent;
  if (a == NULL) return;
  aci_net_serve(a->net);
  aci_agent_pump(a);
  turn(a);
}

int aci_agent_polls(const aci_job *j, struct pollfd *p) {
  return j->agent != NULL ? aci_net_polls(j->agent->net, p) : 0;
}

int64_t aci_agent_deadline(const aci_job *j) {
  const aci_agent *a = j->agent;
  if (a == NULL) return 0;
  return aci_now_ns() + (a->draining && !a->finished ? LOOK_MS : ACI_AGENT_TURN_MS) * MS;
}

/* ---- the end ---- */
/* Machines that others may still need: they are heard, and have ranks. */
static bool others_run(const aci_agent *a) {
  const aci_record *r = a->votes_only && a->page.decided[a->page.newest & 1].n > 0
                            ? &a->page.decided[a->page.newest & 1]
                            : &a->member.record;
  for (uint32_t i = 0; i < r->n; i++) {
    const aci_agent_machine *m = aci_agent_find(a, r->machine[i].uid);
    if (m == NULL || m->uid == a->own.uid || m->done || m->lost) continue;
    if (aci_net_hears(a->net, m->uid)) return true;
  }
  return false;
}

static void tell_end(aci_agent *a) {
  static unsigned char bytes[ACI_NET_FRAME];
  aci_member_msg dead;
  const int64_t now = aci_now_ns();
  if (now - a->told_at < TELL_MS * MS) return;
  a->told_at = now;
  if (!a->failed) aci_net_tell_all(a->net, ACI_FRAME_DONE, NULL, 0);
  if (a->votes_only && aci_acceptor_dead(&a->page, a->own.uid, &dead))
    aci_net_tell_all(a->net, ACI_FRAME_MEMBER, bytes, aci_member_pack(&dead, bytes));
}

ac_status aci_agent_finish(aci_job *j, ac_launch_result *result, ac_status st, ac_err *e) {
  aci_agent *a = j->agent;
  if (a == NULL) return st;
  if (st == AC_OK && j->signal == 0) a->finished = true;
  a->told_at = 0;
  /* The others may need this machine's vote until they have finished, too */
  while (a->finished && j->signal == 0) {
    if (a->member.state == ACI_MEMBER_GONE) a->votes_only = true;
    tell_end(a);
    const bool over = !others_run(a);
    if (over && a->done_at == 0) a->done_at = aci_now_ns();
    if (!over) a->done_at = 0;
    if (over && aci_now_ns() - a->done_at > LINGER_MS * MS) break;
    if (!aci_job_sleep(j, ACI_AGENT_TURN_MS / 1e3)) break;
  }
  if (a->end[0] == 0 || st == AC_OK) return st;
  if (result->signal != 0) return st;
  result->exit_status = a->end_status;
  if (a->end_status == AC_EXIT_REQUEUE) {
    ac_log_write(AC_LOG_WARN, "launch", "%s; the job can be started again", a->end);
    return AC_OK;
  }
  return AC_FAIL(e, PEER, "%s", a->end);
}

void aci_agent_free(aci_job *j) {
  aci_agent *a = j->agent;
  if (a == NULL) return;
  aci_net_close(a->net);
  free(a->self);
  free(a);
  j->agent = NULL;
}
