/* The proposer of single-decree Paxos. Called from member.c.
 *
 * Ballots are plain numbers: an acceptor promises each to one proposer, so two proposers cannot
 * both get a quorum of promises for it. Ballot 1 belongs to the first machine of a record. Nobody
 * can have accepted a lower one, so it needs no promises, and a decision takes one round trip. Any
 * other machine proposes after a wait that grows with the number of living machines before it. A
 * ballot that found no quorum in time is replaced by a higher one. No message is repeated. */
#include <string.h>

#include "launch/member/member_impl.h"

static bool is_first_slot(const aci_member *m) { return m->record.number == 0; }

/* Slot 1 needs the votes of all seeds. A seed that restarts has lost its promises, so a majority
 * of seeds could start two jobs. With all of them, one seed that remembers is enough. */
static bool is_quorum(const aci_member *m) {
  int n = aci_set_count(&m->votes) + m->witness_voted;
  if (is_first_slot(m))
    return ACI_MEMBER_FAULT(SEED_MAJORITY) ? n * 2 > m->o.n_seeds : n == m->o.n_seeds;
  int all = (int)m->record.n + m->o.witness;
  return ACI_MEMBER_FAULT(HALF_QUORUM) ? n * 2 >= all : n * 2 > all;
}

/* To all acceptors, the own one included: the host delivers that message like any other. */
static void ask(aci_member *m, uint8_t kind) {
  aci_member_msg msg = {.kind = kind, .slot = m->record.number + 1, .ballot = m->ballot};
  if (kind == ACI_MEMBER_ACCEPT) msg.record = &m->value;
  else if (!is_first_slot(m)) msg.record = &m->record;
  memset(&m->votes, 0, sizeof m->votes);
  m->witness_voted = false;
  if (is_first_slot(m)) {
    for (int i = 0; i < m->o.n_seeds; i++) aci_member_send(m, ACI_MEMBER_SEED + (uint64_t)i, &msg);
    return;
  }
  if (m->o.witness) aci_member_send(m, ACI_MEMBER_WITNESS, &msg);
  for (uint32_t i = 0; i < m->record.n; i++) aci_member_send(m, m->record.machine[i].uid, &msg);
}

static void offer(aci_member *m) {
  m->accepting = true;
  ask(m, ACI_MEMBER_ACCEPT);
}

/* How many living machines are expected to propose before this one. */
static uint64_t turn(const aci_member *m, uint64_t now) {
  if (is_first_slot(m)) return (uint64_t)m->o.seed;
  uint64_t n = 0;
  for (int i = 0; i < m->self && n < 8; i++) n += aci_member_hears(m, now, i);
  return n;
}

/* A fraction of the ballot time that differs between machines and rounds, so that two proposers
 * do not meet each time. */
static uint64_t spread(const aci_member *m) {
  uint64_t x = (m->uid ^ m->highest) * UINT64_C(0x9e3779b97f4a7c15);
  return (x >> 40) % (m->o.ballot + 1);
}

static bool choose(aci_member *m, uint64_t now, aci_record *out) {
  return is_first_slot(m) ? aci_member_choose_first(m, now, out) : aci_member_choose(m, now, out);
}

void aci_member_propose(aci_member *m, uint64_t now) {
  if (m->ready_at == 0) {
    m->ready_at = now;
    m->retry_at = now + turn(m, now) * m->o.ballot;
  }
  if (now < m->retry_at) return;
  if (!choose(m, now, &m->value)) {
    m->value.n = 0;
    m->ballot = 0; /* answers to it would offer half a record */
    if (is_first_slot(m)) return;
    /* Ask all the same: a record that others have accepted may be decided. */
  }
  m->best = 0;
  m->accepting = false;
  m->retry_at = now + 2 * m->o.ballot + turn(m, now) * m->o.ballot + spread(m);
  if (!is_first_slot(m) && m->self == 0 && m->highest == 0 && m->value.n > 0) {
    m->ballot = m->highest = 1;
    offer(m);
    return;
  }
  m->ballot = m->highest = (m->highest < 1 ? 1 : m->highest) + 1;
  ask(m, ACI_MEMBER_PREPARE);
}

static bool count(aci_member *m, const aci_member_msg *msg) {
  int i = -1;
  if (is_first_slot(m)) i = msg->seed < m->o.n_seeds ? msg->seed : -1;
  else if (msg->from == ACI_MEMBER_WITNESS) m->witness_voted = m->o.witness;
  else i = aci_record_find(&m->record, msg->id, msg->from);
  if (ACI_MEMBER_FAULT(COUNTED_TWICE) && i >= 0 && aci_set_has(&m->votes, i)) i = (i + 1) % 3;
  if (i >= 0) aci_set_add(&m->votes, i);
  return is_quorum(m);
}

/* PROMISE, ACCEPTED and REFUSED. */
void aci_member_answer(aci_member *m, uint64_t now, const aci_member_msg *msg) {
  if (msg->slot != m->record.number + 1 || m->ballot == 0) return;
  if (msg->kind == ACI_MEMBER_REFUSED) {
    if (msg->ballot > m->highest) m->highest = msg->ballot;
    return;
  }
  if (msg->ballot != m->ballot || m->accepting != (msg->kind == ACI_MEMBER_ACCEPTED)) return;
  if (msg->kind == ACI_MEMBER_PROMISE) {
    if (msg->accepted > m->best && !ACI_MEMBER_FAULT(VALUE_IGNORED)) {
      m->best = msg->accepted;
      aci_record_copy(&m->value, msg->record);
    }
    if (count(m, msg) && m->value.n > 0) offer(m);
    return;
  }
  if (!count(m, msg)) return;
  aci_member_msg news = {.kind = ACI_MEMBER_RECORD, .record = &m->value};
  for (uint32_t i = 0; i < m->record.n; i++)
    if ((int)i != m->self) aci_member_send(m, m->record.machine[i].uid, &news);
  for (uint32_t i = 0; i < m->value.n; i++) {
    const aci_machine *one = &m->value.machine[i];
    if (one->uid != m->uid && aci_record_find(&m->record, one->id, one->uid) < 0)
      aci_member_send(m, one->uid, &news);
  }
  if (m->o.witness) aci_member_send(m, ACI_MEMBER_WITNESS, &news);
  aci_member_learn(m, now, &m->value);
}
