/* Events of one agent: beats, silence, reasons to change the generation, learning of a record.
 * Called by the agent's loop and by the simulator, from one thread. */
#include <string.h>

#include "launch/member/member_impl.h"

static void act(aci_member *m, aci_member_act what) { m->host.act(m->host.user, what, &m->record); }

void aci_member_send(aci_member *m, uint64_t to, aci_member_msg *msg) {
  msg->from = m->uid;
  msg->seed = (int16_t)m->o.seed;
  msg->id = m->self >= 0 ? m->record.machine[m->self].id : 0;
  m->host.send(m->host.user, to, msg);
}

void aci_member_init(aci_member *m, const aci_member_options *o, const aci_member_host *host,
                     uint64_t uid, aci_acceptor *page, bool may_start, uint64_t now) {
  memset(m, 0, sizeof *m);
  m->o = *o;
  m->host = *host;
  m->page = page;
  m->uid = uid;
  m->may_start = may_start && o->seed >= 0;
  m->self = -1;
  m->ranks = o->ranks;
  m->started_at = m->ticked_at = now;
  m->applied = m->prepared = o->committed;
}

/* ---- beats ---- */
static bool is_member(const aci_member *m) { return m->self >= 0; }

static uint8_t flags(const aci_member *m) {
  uint8_t f = 0;
  if (!is_member(m)) return ACI_BEAT_JOINS | (m->ready ? ACI_BEAT_READY : 0);
  if (m->state == ACI_MEMBER_DRAINING || m->state == ACI_MEMBER_DRAINED) f |= ACI_BEAT_CHANGE;
  if (m->state == ACI_MEMBER_DRAINED) f |= ACI_BEAT_DRAINED;
  if ((f & ACI_BEAT_CHANGE) != 0 && m->planned) f |= ACI_BEAT_LATER;
  if (m->leaving) f |= ACI_BEAT_LEAVING;
  if (ACI_MEMBER_FAULT(EARLY_REPORT) && m->state == ACI_MEMBER_DRAINING) f |= ACI_BEAT_DRAINED;
  return f;
}

static void fill_beat(aci_member *m, uint64_t now, aci_member_msg *b) {
  *b = (aci_member_msg){.kind = ACI_MEMBER_BEAT,
                        .flags = flags(m),
                        .seq = ++m->seq,
                        .slot = m->record.number,
                        .applied = m->applied,
                        .prepared = m->prepared,
                        .ranks = m->ranks};
  for (int i = 0; i < (int)m->record.n; i++) {
    if (i == m->self || now < m->peer[i].heard_at + m->o.silence) aci_set_add(&b->heard, i);
    if (i == m->self || now < m->peer[i].heard_at + m->o.lease) aci_set_add(&b->recent, i);
  }
}

static void send_beats(aci_member *m, uint64_t now) {
  aci_member_msg b;
  m->beat_at = now;
  fill_beat(m, now, &b);
  if (is_member(m)) {
    aci_member_peer *me = &m->peer[m->self]; /* the own report, where proposers look for it */
    me->heard_at = now;
    me->flags = b.flags;
    me->heard = b.heard;
    me->recent = b.recent;
    me->applied = b.applied;
    me->prepared = b.prepared;
    me->ranks = b.ranks;
  }
  for (int i = 0; i < (int)m->record.n; i++)
    if (i != m->self) aci_member_send(m, m->record.machine[i].uid, &b);
  if (is_member(m)) {
    for (int i = 0; i < m->n_strangers; i++) aci_member_send(m, m->stranger[i].uid, &b);
  }
  /* Members dial the seeds: one that restarted learns that the job runs. */
  for (int s = 0; s < (is_member(m) ? m->o.n_seeds : m->o.n_dial); s++)
    if (s != m->o.seed) aci_member_send(m, ACI_MEMBER_SEED + (uint64_t)s, &b);
}

static void tell_record(aci_member *m, uint64_t to) {
  aci_member_msg news = {.kind = ACI_MEMBER_RECORD, .record = &m->record};
  aci_member_send(m, to, &news);
}

static void receive_beat(aci_member *m, uint64_t now, const aci_member_msg *b) {
  int i = aci_record_find(&m->record, b->id, b->from);
  if (b->slot > m->record.number) { /* we are behind: it answers our beat by its record */
    aci_member_msg own;
    fill_beat(m, now, &own);
    aci_member_send(m, b->from, &own);
  }
  if (b->slot < m->record.number) {
    tell_record(m, b->from);
    if (i >= 0) m->peer[i].heard_at = now;
    else if ((b->flags & ACI_BEAT_JOINS) != 0 && is_member(m)) aci_member_stranger(m, now, b);
    return;
  }
  if (i < 0) {
    if ((b->flags & ACI_BEAT_JOINS) != 0) aci_member_stranger(m, now, b);
    else if (m->record.number == 0) m->started_at = now; /* a job runs: wait for its record */
    return;
  }
  aci_member_peer *p = &m->peer[i];
  if (b->seq <= p->seq) return; /* late or doubled */
  p->seq = b->seq;
  p->heard_at = now;
  if (b->slot > m->record.number) return;
  p->flags = b->flags;
  p->heard = b->heard;
  p->recent = b->recent;
  p->applied = b->applied;
  p->prepared = b->prepared;
  p->ranks = b->ranks;
  if ((b->flags & ACI_BEAT_CHANGE) != 0)
    aci_member_begin_change(m, now, (b->flags & ACI_BEAT_LATER) != 0);
}

bool aci_member_has_lease(const aci_member *m, uint64_t now) {
  if (!is_member(m) || m->state == ACI_MEMBER_GONE) return false;
  if (now >= m->ticked_at + m->o.lease) return false;
  int n = 1;
  for (int i = 0; i < (int)m->record.n; i++)
    n += i != m->self && now < m->peer[i].heard_at + m->o.lease &&
         aci_set_has(&m->peer[i].recent, m->self);
  return n * 2 > (int)m->record.n || (m->o.witness && n * 2 == (int)m->record.n);
}

/* ---- changes ---- */
void aci_member_begin_change(aci_member *m, uint64_t now, bool planned) {
  if (!is_member(m)) return;
  bool draining = m->state == ACI_MEMBER_DRAINING;
  if ((draining || m->state == ACI_MEMBER_DRAINED) && m->planned && !planned) {
    m->planned = false; /* the boundary may never come */
    m->changed_at = now;
    send_beats(m, now);
    if (draining) act(m, ACI_MEMBER_DRAIN);
    return;
  }
  if (m->state != ACI_MEMBER_RUNNING && m->state != ACI_MEMBER_ENTERING) return;
  m->state = ACI_MEMBER_DRAINING;
  m->planned = planned;
  m->changed_at = now;
  m->ready_at = 0;
  send_beats(m, now);
  act(m, planned ? ACI_MEMBER_DRAIN_LATER : ACI_MEMBER_DRAIN);
}

void aci_member_change(aci_member *m, uint64_t now, bool planned) {
  aci_member_begin_change(m, now, planned);
}

void aci_member_entered(aci_member *m, uint64_t now) {
  if (m->state != ACI_MEMBER_ENTERING) return;
  m->state = ACI_MEMBER_RUNNING;
  m->entered_at = now;
  send_beats(m, now);
}

void aci_member_leave(aci_member *m, uint64_t now) {
  m->leaving = true;
  send_beats(m, now);
}

void aci_member_ready(aci_member *m) { m->ready = true; }

/* ---- a new record ---- */
static void take_peers(aci_member *m, uint64_t now, const aci_record *next) {
  int from = 0; /* both lists rise, and survivors are in both: what is kept moves down */
  for (int i = 0; i < (int)next->n; i++) {
    while (from < (int)m->record.n && m->record.machine[from].id < next->machine[i].id) from++;
    uint64_t heard_at = now, seq = 0;
    if (from < (int)m->record.n && m->record.machine[from].uid == next->machine[i].uid) {
      seq = m->peer[from].seq;
      if (m->peer[from].heard_at != 0) heard_at = m->peer[from].heard_at;
    }
    m->peer[i] = (aci_member_peer){.heard_at = heard_at, .seq = seq};
  }
}

void aci_member_learn(aci_member *m, uint64_t now, const aci_record *next) {
  if (next->number <= m->record.number || m->state == ACI_MEMBER_GONE) return;
  bool was_member = is_member(m);
  int self = -1;
  for (int i = 0; i < (int)next->n && self < 0; i++)
    if (next->machine[i].uid == m->uid) self = i;
  take_peers(m, now, next);
  aci_acceptor_learn(m->page, next);
  aci_record_copy(&m->record, next);
  m->self = self;
  m->ready_at = m->ballot = m->highest = 0;
  m->accepting = m->planned = m->paused = false;
  if (self < 0) {
    m->state = was_member ? ACI_MEMBER_GONE : ACI_MEMBER_OUTSIDE;
    if (was_member) act(m, ACI_MEMBER_EXPELLED);
    return;
  }
  int n = 0; /* joiners that became members */
  for (int i = 0; i < m->n_strangers; i++) {
    bool in = false;
    for (uint32_t k = 0; k < next->n && !in; k++) in = next->machine[k].uid == m->stranger[i].uid;
    if (!in) m->stranger[n++] = m->stranger[i];
  }
  m->n_strangers = n;
  m->state = ACI_MEMBER_ENTERING;
  m->applied = m->prepared = next->committed;
  m->entered_at = now;
  act(m, ACI_MEMBER_ENTER);
}

/* ---- entry points ---- */
/* Changes that this machine must begin, and its part in the decision. */
static void advance(aci_member *m, uint64_t now) {
  if (m->record.number == 0) {
    if (m->may_start) aci_member_propose(m, now);
    return;
  }
  if (!is_member(m)) return;
  if (m->state != ACI_MEMBER_DRAINED || m->planned)
    for (int i = 0; i < (int)m->record.n; i++)
      if (!aci_member_hears(m, now, i)) aci_member_begin_change(m, now, false);
  if (m->state == ACI_MEMBER_RUNNING && now >= m->entered_at + m->o.lease) {
    bool lowest = true;
    for (int i = 0; i < m->self; i++) lowest &= !aci_member_hears(m, now, i);
    if (lowest && aci_member_wants_change(m, now)) aci_member_begin_change(m, now, true);
  }
  if (m->state != ACI_MEMBER_DRAINED) return;
  if (aci_member_all_reported(m, now)) aci_member_propose(m, now);
  if (!m->paused && now >= m->changed_at + m->o.drain + 2 * m->o.silence) {
    m->paused = true;
    act(m, ACI_MEMBER_PAUSED);
  }
}

void aci_member_drained(aci_member *m, uint64_t now, uint64_t applied, uint64_t prepared,
                        uint64_t ranks) {
  if (m->state != ACI_MEMBER_DRAINING) return;
  if (ranks == 0) { /* nothing is left to report. The sentinel votes on */
    m->state = ACI_MEMBER_GONE;
    act(m, ACI_MEMBER_EXPELLED);
    return;
  }
  m->state = ACI_MEMBER_DRAINED;
  m->applied = applied;
  m->prepared = prepared;
  m->ranks = ranks;
  send_beats(m, now);
  advance(m, now);
}

void aci_member_tick(aci_member *m, uint64_t now) {
  if (m->state == ACI_MEMBER_GONE) return;
  if (now >= m->ticked_at + m->o.lease) /* we slept: it is not the others who were silent */
    for (int i = 0; i < (int)m->record.n; i++) m->peer[i].heard_at = now;
  m->ticked_at = now;
  if (now >= m->beat_at + m->o.beat) send_beats(m, now);
  aci_member_forget_strangers(m, now);
  advance(m, now);
}

void aci_member_receive(aci_member *m, uint64_t now, const aci_member_msg *msg) {
  if (m->state == ACI_MEMBER_GONE) return;
  switch (msg->kind) {
    case ACI_MEMBER_BEAT: receive_beat(m, now, msg); break;
    case ACI_MEMBER_PREPARE:
    case ACI_MEMBER_ACCEPT: {
      aci_member_msg answer;
      if (msg->slot == 1 && !m->may_start) break; /* the job ran before: no second one */
      if (aci_acceptor_answer(m->page, msg, &answer)) aci_member_send(m, msg->from, &answer);
      break;
    }
    case ACI_MEMBER_RECORD: aci_member_learn(m, now, msg->record); break;
    case ACI_MEMBER_DEAD:
      aci_member_learn(m, now, msg->record);
      for (int i = 0; i < (int)m->record.n; i++)
        if (m->record.machine[i].uid == msg->uid && i != m->self) m->peer[i].dead = true;
      break;
    default: aci_member_answer(m, now, msg); break;
  }
  if (m->state == ACI_MEMBER_DRAINED || msg->kind == ACI_MEMBER_DEAD) advance(m, now);
}
