/* What befalls the machines. Each event is a function of the seed and its number alone, so that a
 * failing run can be repeated without some of them. Part of simulator.h. */

typedef enum sim_what {
  SIM_KILL_AGENT, SIM_KILL_MACHINE, SIM_KILL_RANK, SIM_STOP, SIM_SUSPEND, SIM_PARTITION, SIM_CUT_ONE_WAY,
  SIM_CUT_LINK, SIM_LOSE, SIM_SLOW, SIM_LEAVE, SIM_RESET, SIM_KILL_SENTINEL, SIM_KILL_IN_VOTE,
  SIM_N_WHAT
} sim_what;

static const char *const sim_what_names[] = {
  "agent killed", "machine killed", "rank killed", "machine stopped", "machine suspended", "partition",
  "one-way cut", "link cut", "loss", "slow network", "leaves", "link reset", "sentinel killed",
  "agent killed in a vote"};

static void sim_start(sim_world *w, int i) {
  sim_node *n = &w->node[i];
  if (!n->up || n->agent) return;
  n->uid = (n->next_uid += 16);
  n->agent = true;
  n->member = n->dying = false;
  n->dies_in = 0;
  n->running = n->applied = n->prepared = 0;
  n->ranks = 15;
  if (n->marker || !n->ghost) memset(&n->page, 0, sizeof n->page);
  if (!n->marker) n->ghost = false; /* the new agent goes on with the page */
  w->o.seed = i < w->n_seeds ? i : -1;
  aci_member_host host = {(void *)(intptr_t)i, sim_send, sim_act};
  aci_member_init(&n->m, &w->o, &host, n->uid, &n->page, !n->marker, sim_clock(w, i));
  aci_member_ready(&n->m);
  sim_trace(w, "starts", i, n->uid, 0);
  sim_add(w, 1 + sim_below(w, w->o.beat), SIM_TICK, i, n->uid);
}

/* The sentinel tells all machines that its agent is reaped, until it is out of the record. */
static void sim_sentinel(sim_world *w, int i, uint64_t uid) {
  sim_node *n = &w->node[i];
  if (!n->up || !n->ghost || n->ghost_uid != uid) return;
  aci_member_msg dead;
  if (!aci_acceptor_dead(&n->ghost_page, uid, &dead)) return;
  for (uint32_t k = 0; k < dead.record->n; k++)
    if (dead.record->machine[k].uid != uid)
      sim_post(w, i, sim_node_of(dead.record->machine[k].uid), dead.record->machine[k].uid, &dead);
  sim_add(w, w->o.beat, SIM_SENTINEL, i, uid);
}

/* Event k: machines i and j, for some time. */
static void sim_happens(sim_world *w, int k) {
  uint64_t keep = w->random;
  w->random = mix(w->seed * 64 + (uint64_t)k + 1);
  int what = (int)sim_below(w, SIM_N_WHAT), i = (int)sim_below(w, (uint64_t)w->n_nodes);
  int j = (int)sim_below(w, (uint64_t)w->n_nodes);
  uint64_t lasts = 10 + sim_below(w, 250), back = 20 + sim_below(w, 300);
  bool returns = sim_below(w, 3) != 0;
  int side = (int)sim_below(w, 256), loss = 10 + (int)sim_below(w, 60);
  w->random = keep;
  sim_node *n = &w->node[i];
  if (w->trace)
    printf("%6d ms  event %d: %s, machines %d %d, %d ms\n", (int)w->now, k, sim_what_names[what], i, j,
           (int)lasts);
  if (what >= SIM_PARTITION && what <= SIM_CUT_LINK && w->now >= w->cut_until)
    memset(w->cut, 0, sizeof w->cut);
  switch ((sim_what)what) {
    case SIM_KILL_AGENT: sim_kill_agent(w, i); break;
    case SIM_KILL_MACHINE:
      /* One seed keeps its memory, at least until a disk tells that the job ran. */
      if (!n->up || (i == w->protected_seed && (w->no_markers || !n->marker))) break;
      n->up = n->agent = n->ghost = false;
      n->running = 0;
      n->marker &= !w->no_markers;
      if (!returns) break;
      n->up = true;
      sim_add(w, back, SIM_START, i, 0);
      break;
    case SIM_KILL_RANK:
      if (!n->up || !n->agent) break;
      n->ranks &= n->ranks - 1;
      aci_member_change(&n->m, sim_clock(w, i), false);
      break;
    case SIM_SUSPEND: n->offset += (int64_t)lasts; /* falls through */
    case SIM_STOP:
      if (w->now + lasts > n->paused_until) n->paused_until = w->now + lasts;
      break;
    case SIM_PARTITION:
      for (int a = 0; a < 8; a++)
        for (int b = 0; b < 8; b++)
          if ((side >> a & 1) != (side >> b & 1)) w->cut[a] |= (uint8_t)(1 << b);
      w->cut_until = w->now + lasts;
      break;
    case SIM_CUT_LINK: w->cut[j] |= (uint8_t)(1 << i); /* falls through */
    case SIM_CUT_ONE_WAY:
      w->cut[i] |= (uint8_t)(1 << j);
      w->cut_until = w->now + lasts;
      break;
    case SIM_LOSE:
      w->loss = loss;
      w->lossy_until = w->now + lasts;
      break;
    case SIM_SLOW: w->slow_until = w->now + lasts; break;
    case SIM_LEAVE:
      if (n->up && n->agent) aci_member_leave(&n->m, sim_clock(w, i));
      break;
    case SIM_RESET:
      if (n->up && n->agent) aci_member_change(&n->m, sim_clock(w, i), false);
      break;
    case SIM_KILL_SENTINEL: /* with its agent dead, the page is gone as well */
      if (n->agent || i != w->protected_seed || n->marker) n->ghost = false;
      break;
    case SIM_KILL_IN_VOTE:
      if (n->up && n->agent) n->dies_in = 1 + side % 6;
      break;
    default: break;
  }
  w->furthest_at_heal = w->furthest;
}

static void sim_begin(sim_world *w, uint64_t seed, uint32_t mask, bool trace) {
  memset(w, 0, offsetof(sim_world, pool));
  memset(&w->newest, 0, sizeof *w - offsetof(sim_world, newest));
  w->seed = seed;
  w->mask = mask;
  w->trace = trace;
  w->random = mix(seed + 1);
  for (int i = 0; i < SIM_WHEEL; i++) w->wheel[i] = -1;
  for (int i = 0; i < SIM_POOL; i++) w->free[i] = i;
  w->n_free = SIM_POOL;
  w->n_nodes = 2 + (int)sim_below(w, SIM_NODES - 1);
  w->n_seeds = 1 + (int)sim_below(w, w->n_nodes < 3 ? (uint64_t)w->n_nodes : 3);
  w->no_markers = sim_below(w, 2) == 0;
  w->protected_seed = (int)sim_below(w, (uint64_t)w->n_seeds);
  uint32_t max = (uint32_t)w->n_seeds + (uint32_t)sim_below(w, (uint64_t)(w->n_nodes - w->n_seeds + 1));
  w->o = (aci_member_options){.run = seed,
                              .ranks = 15,
                              .min = 1 + (uint32_t)sim_below(w, max < 3 ? max : 3),
                              .max = max,
                              .n_seeds = w->n_seeds,
                              .n_dial = w->n_nodes,
                              .witness = sim_below(w, 3) == 0,
                              .beat = 20,
                              .lease = 60,
                              .silence = 100,
                              .ballot = 8 + (uint32_t)sim_below(w, 25),
                              .drain = 90,
                              .start_wait = 100};
  for (int i = 0; i < w->n_nodes; i++) {
    w->node[i].next_uid = (uint64_t)i + 2;
    w->node[i].up = true;
    sim_add(w, 1 + sim_below(w, 60), SIM_START, i, 0);
  }
  int n = (int)sim_below(w, SIM_MAX_EVENTS + 1);
  uint64_t at = sim_below(w, 3) == 0 ? 1 : 150, span = 100 + sim_below(w, 500);
  for (int k = 0; k < n; k++) {
    uint64_t when = at + sim_below(w, span);
    sim_event *e = (mask >> k & 1) != 0 ? sim_add(w, when, SIM_HAPPENS, 0, 0) : NULL;
    if (e != NULL) e->a = (uint64_t)k;
  }
  w->settled_at = at + span + 320; /* the longest pause and return, */
  w->end = w->settled_at + 1000;   /* then time to recover */
}
