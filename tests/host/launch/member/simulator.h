/* A job of a few machines in one process: agents, sentinels, a witness, ranks that train, and a
 * network that delays, doubles, reorders and loses messages. It compiles the membership core into
 * itself, with room for 8 machines and with faults that a test can plant.
 *
 * A run is a function of its seed and of the mask of its events. Everything is in fixed arrays, so
 * an event costs no allocation, and time is a wheel of milliseconds. sim_run returns NULL or the
 * property that was broken:
 *   - one decided record per generation, each with the hash of the one before;
 *   - an update is applied with the gradients of one generation only, on all ranks that ever apply
 *     it, expelled ones included, and no record redoes an applied update;
 *   - ranks that enter a generation have applied the same updates;
 *   - after the last event the job continues if a quorum is connected and its state lives.
 * sim_events.h has what befalls the machines, sim_check.h the properties. */
#ifndef ACCEL_TESTS_MEMBER_SIMULATOR_H
#define ACCEL_TESTS_MEMBER_SIMULATOR_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIM_FAULTS(X)                                                                              \
  X(NONE) X(PROMISE_FORGOTTEN) X(ACCEPTED_LOST) X(OLD_SLOT) X(VALUE_IGNORED) X(COUNTED_TWICE)      \
  X(HALF_QUORUM) X(SEED_MAJORITY) X(VERDICT_REDO) X(VERDICT_ANY) X(EARLY_REPORT)  \
  X(SENTINEL_FORGETS) X(BALLOT_SHARED)
#define SIM_ENUM(name) SIM_##name,
enum { SIM_FAULTS(SIM_ENUM) SIM_N_FAULTS };
#define SIM_NAME(name) #name,
static const char *const sim_fault_names[] = {SIM_FAULTS(SIM_NAME)};
static int sim_fault; /* planted in the core. The last one needs about 10^5 schedules */

#define ACI_MEMBER_MAX 8
#define ACI_MEMBER_FAULT(name) (sim_fault == SIM_##name)
#define ACI_MEMBER_STORED(page) sim_stored(page)
struct aci_acceptor;
static void sim_stored(struct aci_acceptor *page);
#include "launch/member/record.c"
#include "launch/member/acceptor.c"
#include "launch/member/choose.c"
#include "launch/member/start.c"
#include "launch/member/propose.c"
#include "launch/member/member.c"

enum { SIM_NODES = 6, SIM_WITNESS = 7, SIM_WHEEL = 2048, SIM_POOL = 8192, SIM_SLOTS = 256,
       SIM_UPDATES = 4096, SIM_MAX_EVENTS = 14 };

typedef enum sim_kind {
  SIM_MESSAGE, SIM_VOTE, SIM_TICK, SIM_COMPUTED, SIM_DRAINED, SIM_ENTERED, SIM_START, SIM_SENTINEL, SIM_HAPPENS
} sim_kind;

typedef struct sim_event {
  int next;
  uint8_t kind, node, from;
  uint64_t uid; /* the agent that it is for: one that restarted is another */
  uint64_t a, b;
  aci_member_msg msg;
  aci_record record;
} sim_event;

typedef struct sim_node {
  bool up, agent, ghost, marker, member, dying;
  int dies_in; /* after so many stores to its page, 0: does not */
  uint64_t uid, ghost_uid, next_uid;
  aci_acceptor page, torn, ghost_page; /* the agent's, the same at its death, and the sentinel's */
  aci_member m;
  int64_t offset; /* of its clock */
  uint64_t paused_until, frozen_at, lasts;
  /* its ranks, taken together */
  uint64_t ranks, running, applied, prepared, prepared_in;
  uint64_t entering, vote[ACI_MEMBER_MAX];
} sim_node;

typedef struct sim_world {
  uint64_t seed, random, now, settled_at, end;
  uint32_t mask;
  int n_nodes, n_seeds, protected_seed, n_dropped;
  uint8_t cut[8]; /* cut[i] bit j: nothing of i reaches j */
  uint64_t cut_until, lossy_until, slow_until;
  int loss; /* percent */
  bool trace, no_markers; /* no_markers: a seed that restarts does not know that the job ran */
  const char *broken;
  aci_member_options o;
  aci_acceptor witness;
  sim_node node[SIM_NODES];
  int wheel[SIM_WHEEL], n_free, free[SIM_POOL];
  sim_event pool[SIM_POOL];
  /* what is known to be true */
  uint64_t newest, decided[SIM_SLOTS], committed[SIM_SLOTS];
  aci_record newest_record, record_before;
  uint64_t applied_in[SIM_UPDATES], furthest, furthest_at_heal;
  uint64_t n_steps;
} sim_world;

static uint64_t sim_random(sim_world *w) { /* splitmix64 */
  return mix(w->random += UINT64_C(0x9e3779b97f4a7c15));
}
static uint64_t sim_below(sim_world *w, uint64_t n) { return (sim_random(w) >> 33) % n; }

static void sim_break(sim_world *w, const char *why) {
  if (w->broken == NULL) w->broken = why;
}

static sim_event *sim_add(sim_world *w, uint64_t delay, sim_kind kind, int node, uint64_t uid) {
  if (w->n_free == 0) {
    w->n_dropped++;
    return NULL;
  }
  int i = w->free[--w->n_free];
  sim_event *e = &w->pool[i];
  uint64_t at = (w->now + (delay == 0 ? 1 : delay)) % SIM_WHEEL;
  e->kind = (uint8_t)kind;
  e->node = (uint8_t)node;
  e->uid = uid;
  e->next = w->wheel[at];
  w->wheel[at] = i;
  return e;
}

/* The node's monotonic clock: another origin, 1 % off, and not advancing while it is suspended. */
static uint64_t sim_clock(const sim_world *w, int i) {
  uint64_t now = w->now;
  return (uint64_t)((int64_t)(now + now * (uint64_t)i / 300) + 100000 * (i + 1) - w->node[i].offset);
}

/* ---- network ---- */
static bool sim_lost(sim_world *w, int from, int to) {
  if (from != to && w->now < w->cut_until && (w->cut[from] >> to & 1) != 0) return true;
  return w->now < w->lossy_until && from != to && (int)sim_below(w, 100) < w->loss;
}

static uint64_t sim_delay(sim_world *w) {
  uint64_t r = sim_random(w);
  if (w->now < w->slow_until && (r & 3) == 0) return 5 + (r >> 8) % 60;
  return 1 + ((r & 63) == 0 ? (r >> 8) % 40 : (r >> 8) % 4);
}

static const aci_record *sim_decided(sim_world *w, const aci_record *r);

static void sim_post(sim_world *w, int from, int to, uint64_t uid, const aci_member_msg *msg) {
  int copies = sim_below(w, 64) == 0 ? 2 : 1;
  if (sim_lost(w, from, to)) return;
  for (int i = 0; i < copies; i++) {
    sim_event *e = sim_add(w, sim_delay(w), SIM_MESSAGE, to, uid);
    if (e == NULL) return;
    e->from = (uint8_t)from;
    e->msg = *msg;
    if (msg->record != NULL) {
      aci_record_copy(&e->record, msg->record);
      e->msg.record = &e->record;
    }
    if (from < SIM_NODES) { /* beats carry votes of the ranks as well: none is lost for good */
      e->a = w->node[from].prepared;
      e->b = w->node[from].running;
    }
  }
}

/* A uid is the number of its node, and a count above it. */
static int sim_node_of(uint64_t uid) { return (int)(uid & 15) - 2; }

static sim_world sim_w; /* the callbacks get the number of their node */

static void sim_stored(aci_acceptor *page) {
  for (int i = 0; i < SIM_NODES; i++) {
    sim_node *n = &sim_w.node[i];
    if (&n->page != page || n->dies_in == 0 || --n->dies_in > 0) continue;
    n->torn = *page;
    n->dying = true;
  }
}

static void sim_send(void *user, uint64_t to, const aci_member_msg *msg) {
  sim_world *w = &sim_w;
  int from = (int)(intptr_t)user;
  if (w->node[from].dying) return;
  if (msg->kind == ACI_MEMBER_RECORD) sim_decided(w, msg->record);
  if (to == ACI_MEMBER_WITNESS) sim_post(w, from, SIM_WITNESS, to, msg);
  else if ((to & ACI_MEMBER_SEED) != 0) sim_post(w, from, (int)(to & 7), 0, msg);
  else if (sim_node_of(to) >= 0) sim_post(w, from, sim_node_of(to), to, msg);
}

#include "host/launch/member/sim_check.h"
#include "host/launch/member/sim_ranks.h"
#include "host/launch/member/sim_events.h"

static void sim_message(sim_world *w, sim_event *e) {
  aci_member_msg answer;
  if (e->node == SIM_WITNESS) {
    if (e->msg.kind == ACI_MEMBER_RECORD) aci_acceptor_learn(&w->witness, e->msg.record);
    if (e->msg.kind != ACI_MEMBER_PREPARE && e->msg.kind != ACI_MEMBER_ACCEPT) return;
    if (!aci_acceptor_answer(&w->witness, &e->msg, &answer)) return;
    answer.from = ACI_MEMBER_WITNESS;
    answer.seed = -1;
    if (sim_node_of(e->msg.from) >= 0)
      sim_post(w, SIM_WITNESS, sim_node_of(e->msg.from), e->msg.from, &answer);
    return;
  }
  sim_node *n = &w->node[e->node];
  if (n->up && n->agent && (e->uid == 0 || e->uid == n->uid)) {
    aci_member_receive(&n->m, sim_clock(w, e->node), &e->msg);
    if (e->msg.kind == ACI_MEMBER_BEAT) sim_count_vote(w, e->node, e->msg.from, e->a, e->b);
  } else if (n->up && n->ghost && e->uid == n->ghost_uid && e->msg.kind == ACI_MEMBER_RECORD) {
    aci_acceptor_learn(&n->ghost_page, e->msg.record);
  } else if (n->up && n->ghost && e->uid == n->ghost_uid &&
             (e->msg.kind == ACI_MEMBER_PREPARE || e->msg.kind == ACI_MEMBER_ACCEPT)) {
    if (ACI_MEMBER_FAULT(SENTINEL_FORGETS)) memset(&n->ghost_page, 0, sizeof n->ghost_page);
    if (!aci_acceptor_answer(&n->ghost_page, &e->msg, &answer)) return;
    answer.from = n->ghost_uid;
    answer.seed = -1;
    aci_member_msg dead; /* the sentinel knows the id of its agent */
    if (aci_acceptor_dead(&n->ghost_page, n->ghost_uid, &dead)) answer.id = dead.id;
    sim_post(w, e->node, sim_node_of(e->msg.from), e->msg.from, &answer);
  }
}

static void sim_step(sim_world *w, sim_event *e) {
  if (e->kind == SIM_HAPPENS) {
    sim_happens(w, (int)e->a);
    return;
  }
  if (e->node < SIM_NODES && w->now < w->node[e->node].paused_until) { /* stopped: later */
    sim_event *again = sim_add(w, w->node[e->node].paused_until - w->now, e->kind, e->node, e->uid);
    if (again == NULL) return;
    int next = again->next;
    *again = *e;
    again->next = next;
    if (e->msg.record == &e->record) again->msg.record = &again->record;
    return;
  }
  if (e->kind == SIM_MESSAGE) {
    sim_message(w, e);
    return;
  }
  sim_node *n = &w->node[e->node];
  if (e->kind == SIM_START) {
    sim_start(w, e->node);
    return;
  }
  if (e->kind == SIM_SENTINEL) {
    sim_sentinel(w, e->node, e->uid);
    return;
  }
  if (!n->up || !n->agent || n->uid != e->uid) return;
  uint64_t clock = sim_clock(w, e->node);
  switch (e->kind) {
    case SIM_VOTE: sim_count_vote(w, e->node, e->msg.from, e->a, e->b); break;
    case SIM_COMPUTED: sim_computed(w, e->node, e->a, e->b); break;
    case SIM_DRAINED: sim_stop_ranks(w, e->node, clock); break;
    case SIM_ENTERED: sim_entered(w, e->node, clock, e->a); break;
    default:
      aci_member_tick(&n->m, clock);
      sim_add(w, w->o.beat, SIM_TICK, e->node, n->uid);
  }
}

static void sim_one(sim_world *w, sim_event *e) {
  sim_step(w, e);
  sim_node *n = e->node < SIM_NODES ? &w->node[e->node] : NULL;
  if (n == NULL || !n->dying) return;
  n->dying = false;
  sim_kill_agent(w, e->node);
  n->ghost_page = n->torn;
}

static void sim_until(sim_world *w, uint64_t end) {
  for (; w->now <= end && w->broken == NULL; w->now++) {
    if (w->now >= w->settled_at && (w->now & 31) == 0 && sim_progress(w) == NULL) break;
    int *slot = &w->wheel[w->now % SIM_WHEEL];
    while (*slot >= 0 && w->broken == NULL) {
      int i = *slot;
      *slot = w->pool[i].next;
      w->n_steps++;
      sim_one(w, &w->pool[i]);
      w->free[w->n_free++] = i;
    }
  }
}

/* NULL: all properties hold. mask: which of its events happen. */
static const char *sim_run(uint64_t seed, uint32_t mask, bool trace) {
  sim_world *w = &sim_w;
  sim_begin(w, seed, mask, trace);
  sim_until(w, w->end);
  if (w->broken == NULL && w->now > w->end) w->broken = sim_progress(w);
  if (w->broken == NULL && w->n_dropped > 0) sim_break(w, "the pool of events is too small");
  return w->broken;
}

/* The smallest set of events that still fails: drops one after the other while it does. */
static uint32_t sim_shrink(uint64_t seed, uint32_t mask) {
  bool again = true;
  while (again) {
    again = false;
    for (int i = 0; i < SIM_MAX_EVENTS; i++) {
      uint32_t less = mask & ~(UINT32_C(1) << i);
      if (less == mask || sim_run(seed, less, false) == NULL) continue;
      mask = less;
      again = true;
    }
  }
  return mask;
}

#endif
