/* Counts per thread: the sum over threads that live, that ended, and that count while they end. */
#include "support/test.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/thread_counter.h"

enum { THREADS = 4, TIMES = 1000 };

static pthread_key_t late;
static void count_late(void *p) { aci_thread_counter_add(*(int64_t *)p); }

static void *work(void *arg) {
  for (int i = 0; i < TIMES; i++) aci_thread_counter_add(*(int64_t *)arg);
  pthread_setspecific(late, arg); /* its destructor may run after the count's own */
  return NULL;
}

static void sums_over_threads(void **state) {
  (void)state;
  const int64_t before = aci_thread_counter_sum();
  int64_t up = 3, down = -3;
  pthread_t t[THREADS];
  assert_int_equal(pthread_key_create(&late, count_late), 0);
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&t[i], NULL, work, round == 0 ? &up : &down), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    assert_int_equal(aci_thread_counter_sum() - before, round == 0 ? THREADS * (TIMES + 1) * 3 : 0);
  }
  aci_thread_counter_add(5);
  aci_thread_counter_add(-7);
  assert_int_equal(aci_thread_counter_sum() - before, -2);
  aci_thread_counter_add(2);
  pthread_key_delete(late);
}

/* A child has the counts of all threads, and none of the threads: new ones may lie where those lay. */
static _Atomic int counted, go_on;
static void *hold(void *arg) {
  (void)arg;
  aci_thread_counter_add(1);
  atomic_fetch_add(&counted, 1);
  while (!atomic_load(&go_on)) usleep(100);
  return NULL;
}

static void a_child_counts_on(void **state) {
  (void)state;
  pthread_t t[THREADS];
  const int64_t before = aci_thread_counter_sum();
  int64_t three = 3;
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&t[i], NULL, hold, NULL), 0);
  while (atomic_load(&counted) < THREADS) usleep(100);
  assert_int_equal(pthread_key_create(&late, count_late), 0);
  const pid_t child = fork();
  if (child == 0) {
    bool right = aci_thread_counter_sum() - before == THREADS;
    for (int i = 0; i < 3 * THREADS && right; i++) {
      pthread_t more;
      right = pthread_create(&more, NULL, work, &three) == 0 && pthread_join(more, NULL) == 0 &&
              aci_thread_counter_sum() - before == THREADS + (i + 1) * (TIMES + 1) * three;
    }
    _exit(right ? 0 : 1);
  }
  int status = -1;
  assert_true(child > 0 && waitpid(child, &status, 0) == child);
  assert_int_equal(status, 0);
  atomic_store(&go_on, 1);
  for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
  assert_int_equal(aci_thread_counter_sum() - before, THREADS);
  aci_thread_counter_add(-THREADS);
  pthread_key_delete(late);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sums_over_threads), cmocka_unit_test(a_child_counts_on)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
