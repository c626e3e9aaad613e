/* The ranks of a machine, taken together: they prepare an update, vote, and apply it after all
 * votes of their generation. They stop when their agent asks. Part of simulator.h. */

static void sim_compute(sim_world *w, int i) {
  sim_node *n = &w->node[i];
  sim_event *e = sim_add(w, 5 + sim_below(w, 40), SIM_COMPUTED, i, n->uid);
  if (e == NULL) return;
  e->a = n->running;
  e->b = n->applied + 1;
}

static void sim_try_apply(sim_world *w, int i) {
  sim_node *n = &w->node[i];
  if (n->running == 0 || n->prepared <= n->applied) return;
  for (uint32_t k = 0; k < n->m.record.n; k++)
    if (n->vote[k] <= n->applied) return;
  sim_applies(w, i, n->applied + 1, n->prepared_in);
  sim_compute(w, i);
}

static void sim_count_vote(sim_world *w, int i, uint64_t from, uint64_t prepared, uint64_t running) {
  sim_node *n = &w->node[i];
  if (n->running == 0 || running != n->running || n->m.record.number != running) return;
  for (uint32_t k = 0; k < n->m.record.n; k++)
    if (n->m.record.machine[k].uid == from && prepared > n->vote[k]) {
      n->vote[k] = prepared;
      sim_try_apply(w, i);
    }
}

static void sim_computed(sim_world *w, int i, uint64_t generation, uint64_t u) {
  sim_node *n = &w->node[i];
  if (n->running != generation || u != n->applied + 1 || n->prepared >= u) return;
  n->prepared = u;
  n->prepared_in = generation;
  for (uint32_t k = 0; k < n->m.record.n; k++) {
    int to = sim_node_of(n->m.record.machine[k].uid);
    if (to == i || sim_lost(w, i, to)) continue;
    sim_event *e = sim_add(w, sim_delay(w), SIM_VOTE, to, n->m.record.machine[k].uid);
    if (e == NULL) return;
    e->msg.from = n->uid;
    e->a = u;
    e->b = generation;
  }
  sim_count_vote(w, i, n->uid, u, generation);
}

static void sim_stop_ranks(sim_world *w, int i, uint64_t clock) {
  sim_node *n = &w->node[i];
  if (n->m.state != ACI_MEMBER_DRAINING) return;
  n->running = 0;
  sim_trace(w, "stops (applied, prep.)", i, n->applied, n->prepared);
  aci_member_drained(&n->m, clock, n->applied, n->prepared, n->ranks);
}

static void sim_entered(sim_world *w, int i, uint64_t clock, uint64_t generation) {
  sim_node *n = &w->node[i];
  if (n->m.state != ACI_MEMBER_ENTERING || n->m.record.number != generation) return;
  n->running = generation;
  memset(n->vote, 0, sizeof n->vote);
  aci_member_entered(&n->m, clock);
  sim_compute(w, i);
}

static void sim_kill_agent(sim_world *w, int i) {
  sim_node *n = &w->node[i];
  if (!n->up || !n->agent) return;
  n->agent = false;
  n->running = 0;
  n->ghost = true;
  n->ghost_uid = n->uid;
  n->ghost_page = n->page;
  sim_add(w, 1 + sim_below(w, 5), SIM_SENTINEL, i, n->uid);
  sim_add(w, 20 + sim_below(w, 100), SIM_START, i, 0);
}

static void sim_act(void *user, aci_member_act act, const aci_record *r) {
  sim_world *w = &sim_w;
  int i = (int)(intptr_t)user;
  sim_node *n = &w->node[i];
  if (n->dying) return;
  switch (act) {
    case ACI_MEMBER_DRAIN: sim_add(w, 1 + sim_below(w, 20), SIM_DRAINED, i, n->uid); break;
    case ACI_MEMBER_DRAIN_LATER: sim_add(w, 1 + sim_below(w, 50), SIM_DRAINED, i, n->uid); break;
    case ACI_MEMBER_EXPELLED:
      sim_trace(w, "is expelled", i, r->number, 0);
      sim_kill_agent(w, i);
      break;
    case ACI_MEMBER_ENTER: {
      sim_decided(w, r);
      n->marker = true;
      if (n->running != 0) sim_break(w, "a record names a machine whose ranks were not stopped");
      if (!n->member) n->applied = n->prepared = r->committed; /* healed by its peers */
      else if (n->applied > r->committed) sim_break(w, "a rank is ahead of the record");
      else if (n->applied < r->committed) {
        if (n->prepared < r->committed) sim_break(w, "a commit of what a rank has not prepared");
        sim_applies(w, i, r->committed, n->prepared_in);
      }
      n->prepared = n->applied;
      if (n->applied != r->committed) sim_break(w, "ranks enter with different updates");
      n->member = true;
      sim_event *e = sim_add(w, 1 + sim_below(w, 20), SIM_ENTERED, i, n->uid);
      if (e != NULL) e->a = r->number;
      break;
    }
    default: break;
  }
}
