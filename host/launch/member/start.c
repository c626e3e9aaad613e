/* The first record, and agents that are not members. Until there is a record, every agent sends
 * its beats to the seed addresses, and seeds keep the list of those present. Afterwards members
 * keep the same list of joiners.
 *
 * The job starts when all seeds are present and `max` machines, or `min` for `start_wait`. */
#include <string.h>

#include "launch/member/member_impl.h"

void aci_member_stranger(aci_member *m, uint64_t now, const aci_member_msg *msg) {
  int i = 0;
  while (i < m->n_strangers && m->stranger[i].uid != msg->from) i++;
  if (i == ACI_MEMBER_MAX) return;
  if (i == m->n_strangers) m->n_strangers++;
  m->stranger[i] = (aci_stranger){.uid = msg->from,
                                  .heard_at = now,
                                  .slot = msg->slot,
                                  .ranks = msg->ranks,
                                  .heard = msg->heard,
                                  .seed = msg->seed,
                                  .flags = msg->flags};
}

void aci_member_forget_strangers(aci_member *m, uint64_t now) {
  int n = 0;
  for (int i = 0; i < m->n_strangers; i++)
    if (now < m->stranger[i].heard_at + m->o.silence) m->stranger[n++] = m->stranger[i];
  m->n_strangers = n;
}

bool aci_member_choose_first(aci_member *m, uint64_t now, aci_record *out) {
  aci_member_forget_strangers(m, now);
  *out = (aci_record){.number = 1, .run = m->o.run, .committed = m->o.committed};
  uint32_t present = 0;
  for (int s = 0; s < m->o.n_seeds; s++) {
    const aci_stranger *found = NULL; /* of two agents that claim a seed, the one heard last */
    for (int i = 0; i < m->n_strangers; i++)
      if (m->stranger[i].seed == s && (found == NULL || m->stranger[i].heard_at >= found->heard_at))
        found = &m->stranger[i];
    if (s != m->o.seed && found == NULL) {
      if (!ACI_MEMBER_FAULT(SEED_MAJORITY)) return false;
      out->next_id++;
      continue;
    }
    out->machine[out->n++] = (aci_machine){.uid = s == m->o.seed ? m->uid : found->uid,
                                           .ranks = s == m->o.seed ? m->o.ranks : found->ranks,
                                           .id = out->next_id++};
  }
  for (int i = 0; i < m->n_strangers; i++) present += m->stranger[i].seed < 0;
  present += out->n;
  if (present < m->o.min || (present < m->o.max && now < m->started_at + m->o.start_wait))
    return false;
  for (int i = 0; i < m->n_strangers && out->n < m->o.max; i++)
    if (m->stranger[i].seed < 0)
      out->machine[out->n++] = (aci_machine){
          .uid = m->stranger[i].uid, .ranks = m->stranger[i].ranks, .id = out->next_id++};
  return true;
}
