/* Which record a proposer would like to follow the present one. All of it is computed from reports
 * that are final, so two proposers may differ in who belongs to it, never in what can be true.
 *
 * Verdict: all ranks apply up to `committed`. A rank applies update u after it saw the votes of all
 * ranks of its generation, which prepared u before they voted. Hence, if anyone ever applied u in
 * this generation, even a machine that is expelled now, every report has prepared >= u, and the
 * rule below commits u. If one report lacks it, nobody has applied u, and nobody will: the rank
 * that lacks it has stopped. */
#include <string.h>

#include "launch/member/member_impl.h"

bool aci_member_hears(const aci_member *m, uint64_t now, int i) {
  const aci_member_peer *p = &m->peer[i];
  return i == m->self || (!p->dead && now < p->heard_at + m->o.silence);
}

static bool has_reported(const aci_member *m, int i) {
  return (m->peer[i].flags & ACI_BEAT_DRAINED) != 0;
}

bool aci_member_all_reported(const aci_member *m, uint64_t now) {
  if (!m->planned && now >= m->changed_at + m->o.drain) return true; /* the others are left out */
  for (int i = 0; i < (int)m->record.n; i++)
    if (!has_reported(m, i) && aci_member_hears(m, now, i)) return false;
  return true;
}

/* Of machines with broken links between them, drops the one with most of them, then the highest,
 * until the rest hear each other. */
static void drop_broken_links(const aci_member *m, aci_member_set *in) {
  for (;;) {
    int worst = -1, most = 0;
    for (int i = 0; i < (int)m->record.n; i++) {
      if (!aci_set_has(in, i)) continue;
      int broken = 0;
      for (int w = 0; w < ACI_MEMBER_WORDS; w++)
        broken += __builtin_popcountll(in->word[w] & ~m->peer[i].heard.word[w]);
      for (int j = 0; j < (int)m->record.n; j++)
        if (aci_set_has(in, j) && aci_set_has(&m->peer[i].heard, j) &&
            !aci_set_has(&m->peer[j].heard, i))
          broken++;
      if (broken > 0 && broken >= most) {
        worst = i;
        most = broken;
      }
    }
    if (worst < 0) return;
    aci_set_remove(in, worst);
  }
}

static void drop_leavers(const aci_member *m, aci_member_set *in) {
  for (int i = (int)m->record.n - 1; i >= 0; i--)
    if (aci_set_has(in, i) && (m->peer[i].flags & ACI_BEAT_LEAVING) != 0 &&
        aci_set_count(in) > (int)m->o.min)
      aci_set_remove(in, i);
}

static uint64_t verdict(const aci_member *m, const aci_member_set *in) {
  uint64_t applied = m->record.committed, prepared = UINT64_MAX, most = 0;
  for (int i = 0; i < (int)m->record.n; i++) {
    if (!aci_set_has(in, i)) continue;
    if (m->peer[i].applied > applied) applied = m->peer[i].applied;
    if (m->peer[i].prepared < prepared) prepared = m->peer[i].prepared;
    if (m->peer[i].prepared > most) most = m->peer[i].prepared;
  }
  if (ACI_MEMBER_FAULT(VERDICT_REDO)) return applied;
  if (ACI_MEMBER_FAULT(VERDICT_ANY)) prepared = most;
  return prepared > applied ? applied + 1 : applied;
}

static bool may_join(const aci_member *m, uint64_t now, const aci_stranger *s,
                     const aci_member_set *in) {
  if ((s->flags & ACI_BEAT_READY) == 0 || s->slot != m->record.number) return false;
  if (now >= s->heard_at + m->o.lease) return false;
  for (int w = 0; w < ACI_MEMBER_WORDS; w++)
    if ((in->word[w] & ~s->heard.word[w]) != 0) return false;
  return true;
}

static void add_machine(aci_record *r, uint64_t uid, uint64_t ranks) {
  r->machine[r->n++] = (aci_machine){.uid = uid, .ranks = ranks, .id = r->next_id++};
}

bool aci_member_choose(aci_member *m, uint64_t now, aci_record *out) {
  aci_member_set in = {{0}};
  for (int i = 0; i < (int)m->record.n; i++)
    if (has_reported(m, i) && aci_member_hears(m, now, i)) aci_set_add(&in, i);
  drop_broken_links(m, &in);
  drop_leavers(m, &in);
  *out = (aci_record){.number = m->record.number + 1,
                      .before = aci_record_hash(&m->record),
                      .run = m->record.run,
                      .next_id = m->record.next_id};
  int kept = 0;
  for (int i = 0; i < (int)m->record.n; i++) {
    if (!aci_set_has(&in, i)) continue;
    out->machine[out->n] = m->record.machine[i];
    out->machine[out->n++].ranks = m->peer[i].ranks;
    kept++;
  }
  if (kept == 0) return false; /* the job's state is lost */
  out->committed = verdict(m, &in);
  for (int i = 0; i < m->n_strangers && out->n < m->o.max; i++)
    if (may_join(m, now, &m->stranger[i], &in))
      add_machine(out, m->stranger[i].uid, m->stranger[i].ranks);
  return out->n >= m->o.min;
}

bool aci_member_wants_change(const aci_member *m, uint64_t now) {
  aci_member_set all = {{0}};
  int n_leaving = 0;
  for (int i = 0; i < (int)m->record.n; i++) {
    aci_set_add(&all, i);
    n_leaving += (m->peer[i].flags & ACI_BEAT_LEAVING) != 0;
  }
  if (n_leaving > 0 && m->record.n > m->o.min) return true;
  for (int i = 0; i < m->n_strangers && m->record.n < m->o.max; i++)
    if (may_join(m, now, &m->stranger[i], &all)) return true;
  return false;
}
