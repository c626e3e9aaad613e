/* The biased lock: one holder at a time whoever has the bias, which is for the first thread that takes it often. */
#include "support/test.h"

#include <pthread.h>

#include "base/biased.h"

enum { THREADS = 4, TIMES = 200000, PAUSES = 300 };

typedef struct shared {
  aci_biased lock;
  int64_t count[8]; /* all equal but for moments inside the lock */
  _Atomic bool torn, stop;
} shared;

static void once(shared *s) {
  const bool own = aci_biased_lock(&s->lock);
  for (int i = 1; i < 8; i++)
    if (s->count[i] != s->count[0]) s->torn = true;
  for (int i = 0; i < 8; i++) s->count[i]++;
  aci_biased_unlock(&s->lock, own);
}

static void *often(void *p) {
  for (int i = 0; i < TIMES; i++) once(p);
  return NULL;
}

/* Takes the bias away again and again, at moments that have nothing to do with the owner's. */
static void *now_and_then(void *p) {
  for (int i = 0; i < PAUSES; i++) {
    once(p);
    for (volatile int k = 0; k < i * 97 % 5000; k++) {
    }
  }
  return NULL;
}

static void check(shared *s, int64_t n) {
  assert_false(s->torn);
  for (int i = 0; i < 8; i++) assert_int_equal(s->count[i], n);
}

static void one_at_a_time(void **state) {
  (void)state;
  shared s = {0};
  pthread_t t[THREADS];
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&t[i], NULL, often, &s), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
  check(&s, (int64_t)THREADS * TIMES);
}

static void the_bias_is_taken_away(void **state) {
  (void)state;
  shared s = {0};
  pthread_t t[2];
  assert_int_equal(pthread_create(&t[0], NULL, often, &s), 0);
  assert_int_equal(pthread_create(&t[1], NULL, now_and_then, &s), 0);
  often(&s);
  for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
  check(&s, 2 * (int64_t)TIMES + PAUSES);
}

/* Whether the bias is anybody's after one take and after many. */
static void *have(void *p) {
  shared *s = p;
  once(s);
  const uintptr_t now = s->lock.owner;
  for (int i = 0; i < 999; i++) once(s);
  return now != 0 || s->lock.owner != 0 ? p : NULL;
}

static void one_thread_has_the_bias(void **state) {
  (void)state;
  shared s = {0};
  pthread_t t;
  void *owner;
  once(&s);
  assert_int_equal(s.lock.owner, 0);
  for (int i = 0; i < 999; i++) once(&s);
  const uintptr_t first = s.lock.owner;
  if (first == 0) skip(); /* no membarrier here: a plain spinlock */
  assert_int_equal(first, (uintptr_t)&aci_biased_me);
  assert_int_equal(pthread_create(&t, NULL, have, &s), 0);
  pthread_join(t, &owner);
  assert_null(owner); /* taken away, and never another's */
  once(&s);
  assert_int_equal(s.lock.owner, 0);
  for (int i = 0; i < 999; i++) once(&s);
  assert_int_equal(s.lock.owner, first);
  check(&s, 3000);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_at_a_time), cmocka_unit_test(the_bias_is_taken_away),
                                     cmocka_unit_test(one_thread_has_the_bias)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
