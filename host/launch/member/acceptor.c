/* The acceptor of single-decree Paxos (Lamport, "Paxos made simple", 2001), one slot at a time.
 *
 * Slots only move forward. A message of a later slot proves that all earlier ones are decided, so
 * their votes may be forgotten, but they must never be answered again: an empty answer would let a
 * late proposer choose another value. It gets the newest record that the acceptor knows, which
 * helps if all agents that learned a record died. */
#include "launch/member/member_impl.h"

static void store(aci_acceptor *a, uint64_t *field, uint64_t value) {
  __atomic_store_n(field, value, __ATOMIC_SEQ_CST);
  (void)a;
  ACI_MEMBER_STORED(a);
}

static const aci_record *value_of(const aci_acceptor *a) { return &a->value[a->accepted & 1]; }

/* Stores are in an order in which a kill after any of them loses no vote: `slot` first, and a value
 * counts only if its number is the slot. An old promise that is left makes ballots fail, no more. */
static void move(aci_acceptor *a, uint64_t slot) {
  store(a, &a->slot, slot);
  store(a, &a->promised, 0);
  store(a, &a->promised_to, 0);
}

static uint64_t accepted_ballot(const aci_acceptor *a) {
  if (ACI_MEMBER_FAULT(ACCEPTED_LOST)) return 0;
  return value_of(a)->number == a->slot ? a->accepted >> 1 : 0;
}

static void vote(aci_acceptor *a, uint64_t ballot, const aci_record *value) {
  uint64_t other = ~a->accepted & 1;
  aci_record_copy(&a->value[other], value);
  ACI_MEMBER_STORED(a);
  store(a, &a->accepted, ballot << 1 | other);
}

static const aci_record *known(const aci_acceptor *a) { return &a->decided[a->newest & 1]; }

void aci_acceptor_learn(aci_acceptor *a, const aci_record *record) {
  uint64_t other = ~a->newest & 1;
  if (record->number <= known(a)->number) return;
  aci_record_copy(&a->decided[other], record);
  store(a, &a->newest, other);
}

bool aci_acceptor_answer(aci_acceptor *a, const aci_member_msg *msg, aci_member_msg *answer) {
  *answer = (aci_member_msg){.slot = msg->slot, .ballot = msg->ballot};
  if (msg->slot <= known(a)->number && !ACI_MEMBER_FAULT(OLD_SLOT)) {
    answer->kind = ACI_MEMBER_RECORD;
    answer->record = known(a);
    return true;
  }
  if (msg->slot < a->slot && !ACI_MEMBER_FAULT(OLD_SLOT)) return false;
  if (msg->slot != a->slot) move(a, msg->slot);
  if (msg->kind == ACI_MEMBER_PREPARE && msg->record != NULL) aci_acceptor_learn(a, msg->record);
  if (msg->kind == ACI_MEMBER_PREPARE) {
    bool same = msg->ballot == a->promised &&
                (msg->from == a->promised_to || ACI_MEMBER_FAULT(BALLOT_SHARED));
    if (msg->ballot <= a->promised && !same) goto refuse;
    store(a, &a->promised, msg->ballot);
    store(a, &a->promised_to, msg->from);
    answer->kind = ACI_MEMBER_PROMISE;
    answer->accepted = accepted_ballot(a);
    answer->record = answer->accepted != 0 ? value_of(a) : NULL;
    return true;
  }
  if (msg->ballot < a->promised && !ACI_MEMBER_FAULT(PROMISE_FORGOTTEN)) goto refuse;
  if (msg->ballot != accepted_ballot(a)) {
    if (msg->ballot > a->promised) store(a, &a->promised, msg->ballot);
    vote(a, msg->ballot, msg->record);
  } else if (aci_record_hash(value_of(a)) != aci_record_hash(msg->record)) {
    goto refuse; /* only an agent that lost its memory uses a ballot twice */
  }
  answer->kind = ACI_MEMBER_ACCEPTED;
  return true;
refuse:
  answer->kind = ACI_MEMBER_REFUSED;
  answer->ballot = a->promised;
  return true;
}

bool aci_acceptor_dead(const aci_acceptor *a, uint64_t uid, aci_member_msg *out) {
  const aci_record *r = known(a);
  for (uint32_t i = 0; i < r->n; i++) {
    if (r->machine[i].uid != uid) continue;
    *out = (aci_member_msg){.kind = ACI_MEMBER_DEAD,
                            .from = uid,
                            .id = r->machine[i].id,
                            .seed = -1,
                            .uid = uid,
                            .record = r};
    return true;
  }
  return false;
}
