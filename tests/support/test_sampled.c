/* ac_test_sampled: of n consecutive calls exactly one is taken, and in a full run all. */
#include "support/test.h"

#include <stdlib.h>

static void test_one_of_n(void **state) {
  int places[6] = {0};
  unsetenv("ACCEL_TEST_FULL");
  setenv("ACCEL_TEST_SEED", "77", 1);
  for (int n = 2; n < 7; n++)
    for (int group = 0; group < 50; group++) {
      int taken = 0;
      for (int i = 0; i < n; i++)
        if (ac_test_sampled(n)) {
          taken++;
          places[i]++;
        }
      assert_int_equal(taken, 1);
    }
  for (int i = 0; i < 6; i++) assert_true(places[i] > 0); /* not always the same one */
}

static void test_full(void **state) {
  setenv("ACCEL_TEST_FULL", "1", 1);
  for (int i = 0; i < 20; i++) assert_true(ac_test_sampled(5));
  assert_int_equal(ac_test_every(9), 1);
  unsetenv("ACCEL_TEST_FULL");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_of_n), cmocka_unit_test(test_full)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
