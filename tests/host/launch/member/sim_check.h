/* What must be true of every run. Part of simulator.h. */

static void sim_trace(const sim_world *w, const char *what, int node, uint64_t a, uint64_t b) {
  if (w->trace)
    printf("%6d ms  machine %d  %-22s %llu %llu\n", (int)w->now, node, what, (unsigned long long)a,
           (unsigned long long)b);
}

/* A record is decided: someone counted a quorum for it. */
static const aci_record *sim_decided(sim_world *w, const aci_record *r) {
  uint64_t g = r->number, hash = aci_record_hash(r);
  if (g >= SIM_SLOTS) {
    sim_break(w, "too many generations");
    return r;
  }
  if (w->decided[g] != 0) {
    if (w->decided[g] != hash) sim_break(w, "two decided records of one generation");
    return r;
  }
  w->decided[g] = hash;
  w->committed[g] = r->committed;
  if (w->trace) {
    printf("%6d ms  generation %d: update %d, machines", (int)w->now, (int)g, (int)r->committed);
    for (uint32_t i = 0; i < r->n; i++) printf(" %d", sim_node_of(r->machine[i].uid));
    printf("\n");
  }
  if (g > 1 && r->before != w->decided[g - 1]) sim_break(w, "a record does not follow the one before");
  if (g > 1 && r->committed < w->committed[g - 1]) sim_break(w, "a commit was taken back");
  for (uint64_t u = w->committed[g] + 1; u < SIM_UPDATES && u <= w->furthest; u++)
    if (w->applied_in[u] != 0 && w->applied_in[u] < g)
      sim_break(w, "a record redoes an update that a rank has applied");
  if (r->n < w->o.min || r->n > w->o.max) sim_break(w, "a record with too few or too many machines");
  for (uint32_t i = 1; i < r->n; i++)
    if (r->machine[i - 1].id >= r->machine[i].id) sim_break(w, "machines out of order");
  if (g > w->newest) {
    w->newest = g;
    w->record_before = w->newest_record;
    aci_record_copy(&w->newest_record, r);
  }
  return r;
}

/* A rank changes its parameters by update u, whose gradients are of generation g. */
static void sim_applies(sim_world *w, int node, uint64_t u, uint64_t g) {
  sim_node *n = &w->node[node];
  sim_trace(w, "applies (update, gen.)", node, u, g);
  if (u != n->applied + 1) sim_break(w, "an update was skipped or repeated");
  if (u >= SIM_UPDATES) return;
  if (w->applied_in[u] != 0 && w->applied_in[u] != g) sim_break(w, "two verdicts of one update");
  if (g + 1 < SIM_SLOTS && w->decided[g + 1] != 0 && w->committed[g + 1] < u)
    sim_break(w, "a rank applies an update that a record redoes");
  w->applied_in[u] = g;
  if (u > w->furthest) w->furthest = u;
  n->applied = u;
}

static bool sim_votes_for(const sim_world *w, uint64_t uid) { /* agent or sentinel */
  const sim_node *n = &w->node[sim_node_of(uid)];
  return n->up && ((n->agent && n->uid == uid) || (n->ghost && n->ghost_uid == uid));
}

static bool sim_is_agent(const sim_world *w, uint64_t uid) {
  const sim_node *n = &w->node[sim_node_of(uid)];
  return n->up && n->agent && n->uid == uid;
}

static bool sim_has_quorum(const sim_world *w, const aci_record *r) {
  int n = w->o.witness;
  for (uint32_t i = 0; i < r->n; i++) n += sim_votes_for(w, r->machine[i].uid);
  return n * 2 > (int)r->n + w->o.witness;
}

/* NULL: after the last event, the job runs again with all machines that it can have, or it cannot. */
static const char *sim_progress(sim_world *w) {
  int alive = 0, kept = 0, running = 0;
  for (int i = 0; i < w->n_nodes; i++) alive += w->node[i].up && w->node[i].agent;
  if (alive < (int)w->o.min) return NULL;
  if (w->newest == 0) {
    for (int s = 0; s < w->n_seeds; s++)
      if (!w->node[s].up || !w->node[s].agent || w->node[s].marker) return NULL;
    return "all seeds are present and no job started";
  }
  const aci_record *r = &w->newest_record;
  bool known = false, heir = false; /* a living member of the record before can ask for it */
  for (uint32_t k = 0; k < w->record_before.n; k++)
    heir |= sim_is_agent(w, w->record_before.machine[k].uid);
  for (int i = 0; i < w->n_nodes; i++)
    known |= w->node[i].up && w->node[i].agent && w->node[i].m.record.number == w->newest;
  if (!known && (!heir || !sim_has_quorum(w, &w->record_before))) return NULL;
  if (!sim_has_quorum(w, r)) return NULL;
  for (uint32_t k = 0; k < r->n; k++)
    kept += sim_is_agent(w, r->machine[k].uid) && w->node[sim_node_of(r->machine[k].uid)].ranks != 0;
  if (kept == 0) return NULL; /* the state is lost */
  for (int i = 0; i < w->n_nodes; i++) {
    const sim_node *n = &w->node[i];
    if (!n->up || !n->agent || n->m.state != ACI_MEMBER_RUNNING) continue;
    running += n->m.record.number == w->newest;
    if (!aci_member_has_lease(&n->m, sim_clock(w, i))) return "a member of a quorum has no lease";
  }
  if (running != (int)r->n) return "a quorum is connected and not all members run";
  if (running < alive && running < (int)w->o.max) return "a machine was not let in";
  return w->furthest > w->furthest_at_heal ? NULL : "the members run and commit nothing";
}
