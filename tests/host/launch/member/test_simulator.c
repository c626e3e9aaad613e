/* The membership core under random schedules of kills, stops, partitions, losses, duplicates and
 * reordered messages. Each planted fault must be found, so the simulator can fail. With the default
 * times, a decision after a death keeps its bound.
 * ACCEL_MEMBER_SEED=N ACCEL_MEMBER_MASK=M prints one run. */
#include "support/test.h"

#include "host/launch/member/simulator.h"
#include "host/launch/member/schedules.h"

static void test_random(void **state) {
  (void)state;
  const char *seed = getenv("ACCEL_MEMBER_SEED"), *mask = getenv("ACCEL_MEMBER_MASK");
  if (seed == NULL) {
    run_schedules(first_seed(), (uint64_t)(20000 / ac_test_every(10)));
    return;
  }
  const char *why = sim_run(strtoull(seed, NULL, 10),
                            mask != NULL ? (uint32_t)strtoul(mask, NULL, 10) : UINT32_MAX, true);
  printf("%s\n", why == NULL ? "all properties hold" : why);
}

static void test_faults(void **state) {
  (void)state;
  find_faults(1, SIM_N_FAULTS - 2, 50000);
}

/* The default times on 4 machines: from a death to the next decided record. */
static uint64_t decision_after(uint64_t seed, int machine, bool whole) {
  sim_world *w = &sim_w;
  sim_begin(w, seed, 0, getenv("ACCEL_MEMBER_TRACE") != NULL);
  aci_member_options o = ACI_MEMBER_OPTIONS;
  w->n_nodes = o.n_dial = 4;
  o.max = 4;
  w->n_seeds = 1;
  w->o = o;
  w->settled_at = UINT64_MAX;
  for (int i = 0; i < SIM_NODES; i++) {
    w->node[i].up = i < 4;
    w->node[i].next_uid = (uint64_t)i + 2;
    sim_add(w, 1, SIM_START, i, 0);
  }
  sim_until(w, 1200 + sim_below(w, 200));
  assert_int_equal(w->newest, 1);
  assert_int_equal(w->newest_record.n, 4);
  uint64_t killed = w->now;
  sim_kill_agent(w, machine);
  if (whole) w->node[machine].up = false;
  while (w->newest == 1 && w->broken == NULL && w->now < killed + 5000) sim_until(w, w->now);
  assert_null(w->broken);
  assert_int_equal(w->newest_record.n, 3);
  return w->now - killed;
}

static void test_times(void **state) {
  (void)state;
  uint64_t most[2] = {0, 0};
  for (uint64_t seed = 1; seed <= 200; seed++)
    for (int whole = 0; whole < 2; whole++) {
      uint64_t ms = decision_after(seed, (int)(seed % 4), whole != 0);
      if (ms > most[whole]) most[whole] = ms;
    }
  printf("slowest decision of 200: %d ms after the death of an agent, %d ms after a power cut\n",
         (int)most[0], (int)most[1]);
  assert_true(most[0] <= 150);
  assert_true(most[1] <= 2000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random),
      cmocka_unit_test(test_faults),
      cmocka_unit_test(test_times),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
