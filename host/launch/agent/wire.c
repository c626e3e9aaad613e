/* Messages of the membership core as bytes: the message without its record, then the record as far
 * as it is filled. Bytes of other agents are checked like all outside data. */
#include <string.h>

#include "launch/agent/agent.h"

_Static_assert(sizeof(aci_member_msg) + sizeof(aci_record) <= ACI_NET_FRAME, "a message fits");

static size_t record_bytes(uint32_t n) {
  return offsetof(aci_record, machine) + n * sizeof(aci_machine);
}

size_t aci_member_pack(const aci_member_msg *msg, unsigned char *out) {
  aci_member_msg m = *msg;
  size_t n = sizeof m;
  m.record = NULL;
  memcpy(out, &m, sizeof m);
  if (msg->record == NULL) return n;
  memcpy(out + n, msg->record, record_bytes(msg->record->n));
  return n + record_bytes(msg->record->n);
}

/* Kinds whose receiver looks at the record. */
static bool needs_record(const aci_member_msg *m) {
  return m->kind == ACI_MEMBER_ACCEPT || m->kind == ACI_MEMBER_RECORD ||
         m->kind == ACI_MEMBER_DEAD || (m->kind == ACI_MEMBER_PROMISE && m->accepted != 0);
}

bool aci_member_unpack(const void *bytes, size_t n, aci_member_msg *out, aci_record *record) {
  if (n < sizeof *out) return false;
  memcpy(out, bytes, sizeof *out);
  out->record = NULL;
  n -= sizeof *out;
  if (out->kind < ACI_MEMBER_BEAT || out->kind > ACI_MEMBER_DEAD) return false;
  if (n == 0) return !needs_record(out);
  if (n < offsetof(aci_record, machine)) return false;
  const unsigned char *at = (const unsigned char *)bytes + sizeof *out;
  memcpy(record, at, offsetof(aci_record, machine));
  if (record->number == 0 || record->n == 0 || record->n > ACI_MEMBER_MAX ||
      n != record_bytes(record->n))
    return false;
  memcpy(record->machine, at + offsetof(aci_record, machine), n - offsetof(aci_record, machine));
  for (uint32_t i = 1; i < record->n; i++)
    if (record->machine[i].id <= record->machine[i - 1].id) return false;
  out->record = record;
  return true;
}
