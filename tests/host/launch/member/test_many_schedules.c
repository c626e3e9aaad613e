/* tier: slow. 10^7 random schedules of the membership core, shared out to the CPUs. The properties are
 * in simulator.h. ACCEL_TEST_SEED chooses others. */
#include "support/test.h"

#include <sys/wait.h>
#include <unistd.h>

#include "host/launch/member/simulator.h"
#include "host/launch/member/schedules.h"

enum { MOST_CHILDREN = 16 };

static void test_many(void **state) {
  (void)state;
  const char *text = getenv("ACCEL_MEMBER_RUNS");
  uint64_t all = text != NULL ? strtoull(text, NULL, 10) : (uint64_t)(10000000 / ac_test_every(100));
  long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  int n = cpus < 1 ? 1 : cpus > MOST_CHILDREN ? MOST_CHILDREN : (int)cpus, failed = 0;
  pid_t child[MOST_CHILDREN];
  fflush(NULL);
  for (int i = 0; i < n; i++) {
    child[i] = fork();
    assert_true(child[i] >= 0);
    if (child[i] > 0) continue;
    uint64_t share = all / (uint64_t)n, first = first_seed() + (uint64_t)i * share;
    for (uint64_t k = 0; k < share; k++) {
      if (k > 0 && k % 500000 == 0) {
        printf("%llu schedules from seed %llu so far\n", (unsigned long long)k, (unsigned long long)first);
        fflush(NULL);
      }
      if (sim_run(first + k, UINT32_MAX, false) != NULL) {
        printf("seed %llu fails\n", (unsigned long long)(first + k));
        uint32_t mask = sim_shrink(first + k, UINT32_MAX);
        printf("%s: ACCEL_MEMBER_SEED=%llu ACCEL_MEMBER_MASK=%u\n", sim_run(first + k, mask, true),
               (unsigned long long)(first + k), mask);
        fflush(NULL);
        _exit(1);
      }
    }
    printf("%llu schedules from seed %llu\n", (unsigned long long)share, (unsigned long long)first);
    fflush(NULL);
    _exit(0);
  }
  for (int i = 0; i < n; i++) {
    int status = 0;
    assert_int_equal(waitpid(child[i], &status, 0), child[i]);
    failed += status != 0;
  }
  assert_int_equal(failed, 0);
  printf("%llu schedules in all\n", (unsigned long long)(all / (uint64_t)n * (uint64_t)n));
}

static void test_rare_fault(void **state) {
  (void)state;
  find_faults(SIM_N_FAULTS - 1, SIM_N_FAULTS - 1, 5000000);
}

int main(void) {
  (void)run_schedules;
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_many), cmocka_unit_test(test_rare_fault)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
