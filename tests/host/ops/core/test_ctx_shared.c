/* A context on the devices of another one, in a thread of its own: one pool, tensors at home in both, any order of
 * ends. What data workers stand on. */
#include "support/test.h"

#include <pthread.h>
#include <string.h>

#include "accel/op.h"
#include "accel/ops.h"
#include "base/base_impl.h"
#include "ops/core/ctx_impl.h"

static ac_ctx *context(ac_ctx *like) {
  ac_ctx_options o = AC_CTX_OPTIONS_INIT;
  ac_ctx *c;
  ac_err e;
  o.n_threads = 2;
  if (like != NULL) {
    o.devices = like->device;
    o.n_devices = like->n_devices;
  }
  assert_ok(ac_ctx_new(&o, &c, &e), e);
  return c;
}

static ac_device *cpu(ac_ctx *c) {
  ac_device *d;
  ac_err e;
  assert_ok(ac_ctx_device(c, "cpu", &d, &e), e);
  return d;
}

static ac_tensor *tensor(ac_ctx *c, int64_t n) {
  ac_tensor *t;
  ac_err e;
  assert_ok(ac_tensor_new(cpu(c), AC_F32, 1, &n, &t, &e), e);
  for (int64_t i = 0; i < n; i++) ((float *)ac_tensor_data(t))[i] = (float)i;
  return t;
}

static void one_pool(void **state) {
  (void)state;
  ac_ctx *a = context(NULL), *b = context(a);
  assert_ptr_equal(cpu(a), cpu(b));
  assert_ptr_equal(ac_ctx_default_device(b), cpu(a));
  assert_ptr_not_equal(ac_ctx_team(a), ac_ctx_team(b));
  ac_tensor *x = tensor(a, 100), *y = tensor(b, 100), *z = NULL;
  ac_mem_stats m;
  ac_mem_stats_get(cpu(a), &m);
  assert_int_equal(m.live_blocks, 2);
  ac_value args[2] = {{.kind = AC_T_TENSOR, .tensor = x}, {.kind = AC_T_TENSOR, .tensor = y}}, results[AC_MAX_RESULTS];
  int n;
  ac_err e;
  assert_ok(ac_call(b, ac_op_find(b, "mul"), args, results, &n, &e), e);
  z = results[0].tensor;
  assert_true(((float *)ac_tensor_data(z))[99] == 99.0f * 99.0f);
  assert_ptr_equal(z->device, cpu(a));
  ac_tensor_release(y);
  ac_ctx_free(b);
  assert_non_null(cpu(a)->team); /* its owner is still there */
  ac_tensor_release(x);
  ac_tensor_release(z);
  ac_ctx_free(a);
}

/* The owner's context goes first: devices and pool stay for the other one and for its tensors. */
static void owner_ends_first(void **state) {
  (void)state;
  ac_ctx *a = context(NULL), *b = context(a);
  ac_tensor *x = tensor(b, 1 << 20);
  ac_ctx_free(a);
  ac_tensor *y = tensor(b, 10);
  ac_ctx_free(b);
  assert_true(((float *)ac_tensor_data(x))[77] == 77.0f);
  ac_tensor_release(x);
  ac_tensor_release(y);
}

enum { ROUNDS = 2000, THREADS = 3 };
typedef struct shared_job {
  ac_ctx *like;
  ac_tensor *seen;
  int bad;
} shared_job;

static void count(void *arg, int64_t begin, int64_t end) {
  (void)begin, (void)end;
  pthread_t *who = arg;
  if (!pthread_equal(*who, pthread_self())) *who = 0;
}

static void *work(void *arg) {
  shared_job *j = arg;
  aci_team_alone();
  ac_ctx *c = context(j->like);
  pthread_t who = pthread_self();
  ac_parallel_for(ac_ctx_team(j->like), 1000, 1, count, &who);
  if (!pthread_equal(who, pthread_self())) j->bad++; /* another thread ran a piece */
  for (int i = 0; i < ROUNDS; i++) {
    ac_tensor *t = tensor(c, 1 + i % 300);
    ac_tensor *alias = aci_tensor_detach(j->seen);
    if (((float *)ac_tensor_data(alias))[i] != (float)i) j->bad++;
    ac_tensor_release(alias);
    ac_tensor_release(t);
  }
  ac_ctx_free(c);
  return NULL;
}

static void threads(void **state) {
  (void)state;
  ac_ctx *a = context(NULL);
  ac_tensor *x = tensor(a, ROUNDS);
  pthread_t id[THREADS];
  shared_job jobs[THREADS];
  for (int i = 0; i < THREADS; i++) {
    jobs[i] = (shared_job){.like = a, .seen = x};
    assert_int_equal(pthread_create(&id[i], NULL, work, &jobs[i]), 0);
  }
  for (int i = 0; i < ROUNDS; i++) ac_tensor_release(tensor(a, 1 + i % 200));
  for (int i = 0; i < THREADS; i++) {
    pthread_join(id[i], NULL);
    assert_int_equal(jobs[i].bad, 0);
  }
  ac_mem_stats m;
  ac_mem_stats_get(cpu(a), &m);
  assert_int_equal(m.live_blocks, 1);
  ac_tensor_release(x);
  ac_ctx_free(a);
  assert_int_equal(ac_tensor_live(), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_pool), cmocka_unit_test(owner_ends_first),
                                     cmocka_unit_test(threads)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
