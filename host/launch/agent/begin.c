/* The beginning of an agent: it meets the others, and learns which ranks run on this machine. Called by
 * launch.c. See agent.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "launch/agent/agent.h"

#ifndef ACCEL_VERSION
#define ACCEL_VERSION "unknown"
#endif

#define MS ((int64_t)1000000)
enum { SAY_MS = 3000 };

static uint64_t hash_text(const char *s) { return aci_hash_bytes(0, s, strlen(s)) | 1; }

/* Numbers at the start are bytes and indexes of ACI_MAX_LOCAL entries (comm/segment.h). Machines may
 * have different numbers of ranks, so only the record tells how many there are. */
static ac_status check_size(const aci_record *r, ac_err *e) {
  int n = 0;
  for (uint32_t i = 0; i < r->n; i++) n += __builtin_popcountll(r->machine[i].ranks);
  if (n <= ACI_MAX_LOCAL) return AC_OK;
  return AC_FAIL(e, INVALID,
                 "the %u machines have %d ranks; a job of num_machines MIN:MAX may have %d in all",
                 (unsigned)r->n, n, ACI_MAX_LOCAL);
}

/* From the first record: which ranks run here, and where rank 0 is. */
static bool take_plan(aci_agent *a) {
  aci_job *j = a->j;
  const aci_record *r = &a->member.record;
  const aci_net_hello *first = aci_net_who(a->net, r->machine[0].uid);
  int at = 0;
  if (first == NULL) return false; /* its connection comes up */
  a->n_machines = 0;
  for (uint32_t i = 0; i < r->n && i < ACI_AGENT_MACHINES; i++) {
    const int n = __builtin_popcountll(r->machine[i].ranks);
    a->machine[a->n_machines++] =
        (aci_agent_machine){.uid = r->machine[i].uid, .id = r->machine[i].id, .first = at, .n = n};
    if (r->machine[i].uid == a->own.uid) {
      j->first = at;
      j->machine = (int)i;
    }
    at += n;
  }
  j->world = at;
  j->machines = (int)r->n;
  if (j->machine > 0) j->port = first->rank_port;
  if (r->n > 1) j->address = aci_net_seed_host(a->net, 0);
  return true;
}

static ac_status refused(aci_agent *a, ac_err *e) {
  if (aci_net_refusal(a->net)[0] != 0) return AC_FAIL(e, MISMATCH, "%s", aci_net_refusal(a->net));
  if (a->member.record.number > 0 && a->member.self < 0)
    return AC_FAIL(
        e, UNSUPPORTED,
        "the job runs without this machine (generation %llu, %u machines); machines cannot "
        "join a running job so far",
        (unsigned long long)a->member.record.number, (unsigned)a->member.record.n);
  return AC_OK;
}

static void say_waits(aci_agent *a) {
  const int64_t now = aci_now_ns();
  if (a->told_at == 0) a->told_at = now;
  if (now - a->told_at < SAY_MS * MS) return;
  a->told_at = INT64_MAX - SAY_MS * MS;
  ac_log_write(AC_LOG_WARN, "launch", "waiting for %d to %d machines at %s (%d here so far%s)",
               a->own.min, a->own.max, a->own.seeds, a->member.n_strangers + 1,
               a->own.seed < 0 ? "; this one is not in the list" : "");
}

static ac_status meet(aci_agent *a, ac_err *e) {
  aci_job *j = a->j;
  while (a->member.state == ACI_MEMBER_OUTSIDE || !take_plan(a)) {
    if (!aci_job_sleep(j, ACI_AGENT_TURN_MS / 1e3)) return AC_OK; /* a signal: attempts sees it */
    AC_TRY(refused(a, e));
    say_waits(a);
  }
  return check_size(&a->member.record, e);
}

ac_status aci_agent_join(aci_job *j, ac_err *e) {
  const ac_launch_options *o = j->o;
  aci_agent *a = calloc(1, sizeof *a);
  if (a == NULL) return AC_FAIL(e, OOM, "no memory for the agent of this machine");
  a->j = j;
  a->own = (aci_net_hello){
      .rank_port = j->port, .ranks = j->n, .min = o->min_machines, .max = o->num_machines};
  ac_status st = aci_random_bytes(&a->own.uid, sizeof a->own.uid, e);
  a->own.uid = (a->own.uid & ~ACI_MEMBER_SEED) | 2; /* never an address of another kind */
  snprintf(a->own.host, sizeof a->own.host, "%.39s", j->host);
  snprintf(a->own.version, sizeof a->own.version, "%.23s", ACCEL_VERSION);
  if (st == AC_OK)
    st = aci_net_open(o->rendezvous, &j->key, j->run_id, &a->own, aci_agent_take, a, &a->net, e);
  if (st != AC_OK) {
    free(a);
    return st;
  }
  aci_member_options m = ACI_MEMBER_OPTIONS;
  m.run = hash_text(j->run_id);
  m.ranks = j->n == 64 ? UINT64_MAX : (UINT64_C(1) << j->n) - 1;
  m.min = (uint32_t)o->min_machines;
  m.max = (uint32_t)o->num_machines;
  m.n_seeds = m.n_dial = aci_net_seeds(a->net);
  m.seed = a->own.seed;
  /* a rank leaves its call only after the micro-batch that it computes: nobody who beats is left out
   * for being slow */
  m.drain = 3600 * 1000;
  const aci_member_host host = {.user = a, .send = aci_agent_send, .act = aci_agent_queue};
  aci_member_init(&a->member, &m, &host, a->own.uid, &a->page, true, aci_agent_now());
  j->agent = a;
  return meet(a, e);
}
