/* Many runs of the simulator, and the report of one that fails. Shared by its two tests. */
#ifndef ACCEL_TESTS_MEMBER_SCHEDULES_H
#define ACCEL_TESTS_MEMBER_SCHEDULES_H

static uint64_t first_seed(void) {
  const char *text = getenv("ACCEL_TEST_SEED");
  return text != NULL ? strtoull(text, NULL, 10) * UINT64_C(10000019) : UINT64_C(47000000);
}

/* Prints the events and messages of a smallest schedule that fails. */
static void report(uint64_t seed) {
  uint32_t mask = sim_shrink(seed, UINT32_MAX);
  const char *why = sim_run(seed, mask, true);
  fail_msg("%s: repeat it by ACCEL_MEMBER_SEED=%llu ACCEL_MEMBER_MASK=%u", why,
           (unsigned long long)seed, mask);
}

static void run_schedules(uint64_t first, uint64_t n) {
  uint64_t steps = 0, updates = 0, generations = 0;
  for (uint64_t seed = first; seed < first + n; seed++) {
    if (sim_run(seed, UINT32_MAX, false) != NULL) report(seed);
    steps += sim_w.n_steps;
    updates += sim_w.furthest;
    generations += sim_w.newest;
  }
  printf("%llu schedules from seed %llu: %.1f generations, %.1f updates, %.0f messages and timers each\n",
         (unsigned long long)n, (unsigned long long)first, (double)generations / (double)n,
         (double)updates / (double)n, (double)steps / (double)n);
}

/* Every fault up to `last` must break a property. */
static void find_faults(int first, int last, uint64_t most) {
  for (sim_fault = first; sim_fault <= last; sim_fault++) {
    const char *why = NULL;
    uint64_t n = 0;
    while (why == NULL && n < most) why = sim_run(++n, UINT32_MAX, false);
    if (why == NULL) fail_msg("the simulator does not find %s", sim_fault_names[sim_fault]);
    printf("%-18s found by schedule %6llu: %s\n", sim_fault_names[sim_fault], (unsigned long long)n, why);
  }
  sim_fault = SIM_NONE;
}

#endif
