/* Counts per thread: the sum over threads that live, that ended, and that count while they end. */
#include "support/test.h"

#include <pthread.h>

#include "base/tally.h"

enum { THREADS = 4, TIMES = 1000 };

static pthread_key_t late;
static void count_late(void *p) { aci_tally_add(*(int64_t *)p); }

static void *work(void *arg) {
  for (int i = 0; i < TIMES; i++) aci_tally_add(*(int64_t *)arg);
  pthread_setspecific(late, arg); /* its destructor may run after the count's own */
  return NULL;
}

static void sums_over_threads(void **state) {
  (void)state;
  const int64_t before = aci_tally_sum();
  int64_t up = 3, down = -3;
  pthread_t t[THREADS];
  assert_int_equal(pthread_key_create(&late, count_late), 0);
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&t[i], NULL, work, round == 0 ? &up : &down), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    assert_int_equal(aci_tally_sum() - before, round == 0 ? THREADS * (TIMES + 1) * 3 : 0);
  }
  aci_tally_add(5);
  aci_tally_add(-7);
  assert_int_equal(aci_tally_sum() - before, -2);
  aci_tally_add(2);
  pthread_key_delete(late);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sums_over_threads)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
