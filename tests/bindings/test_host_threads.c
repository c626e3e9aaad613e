/* Hosts side by side in one process: two threads train at the same time and get the bits they get alone; a tensor crosses from one
 * to the other while both work. */
#include "support/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel/accel.h"

enum { ROUNDS = 3, MOST = 1 << 16 };

static const char script[] =
    "local accel = require 'accel'\n"
    "local nn, optim = accel.nn, accel.optim\n"
    "function train(seed, steps)\n"
    "  accel.manual_seed(seed)\n"
    "  local model = nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Dropout(0.2), nn.LayerNorm(48), nn.Linear(48, 5))\n"
    "  local opt = optim.AdamW(model:parameters(), { lr = 3e-3 })\n"
    "  local data = accel.data.TensorDataset(accel.randn(96, 16), accel.randint(0, 5, { 96 }))\n"
    "  local loader = accel.data.DataLoader { dataset = data, batch_size = 24, shuffle = true, seed = seed }\n"
    "  local step = 0\n"
    "  while step < steps do\n"
    "    for batch in loader() do\n"
    "      step = step + 1\n"
    "      nn.functional.cross_entropy(model(batch[1]), batch[2]):backward()\n"
    "      opt:step() opt:zero_grad()\n"
    "      if step % 7 == 0 then pcall(error, 'a script that errs now and then') end\n"
    "    end\n"
    "  end\n"
    "  local bytes = {}\n"
    "  for i, p in ipairs(model:parameters()) do bytes[i] = p:detach():to_bytes() end\n"
    "  return table.concat(bytes)\n"
    "end\n"
    "function total(t) return t:sum():item() end\n";

static ac_status open_host(int threads, ac_host **h, ac_err *e) {
  static char dir[4096]; /* every caller writes the same */
  ac_host_options o = AC_HOST_OPTIONS_INIT;
  const char *build = getenv("ACCEL_TEST_BUILD");
  char own[4096];
  snprintf(own, sizeof own, "%s/share/lua/5.4", build != NULL ? build : ".");
  if (dir[0] == 0) memcpy(dir, own, sizeof dir);
  o.lua_dir = dir;
  o.n_threads = threads;
  AC_TRY(ac_host_open(&o, h, e));
  return ac_host_run_string(*h, script, "threads", 0, NULL, e);
}

typedef struct train_job {
  int seed, steps, threads;
  ac_status st;
  ac_err e;
  size_t n;
  char bytes[MOST];
} train_job;

static void *work(void *arg) {
  train_job *j = arg;
  ac_host *h = NULL;
  const ac_host_value args[2] = {{.type = AC_HOST_INT, .i = j->seed}, {.type = AC_HOST_INT, .i = j->steps}};
  ac_host_value r;
  j->n = 0;
  j->st = open_host(j->threads, &h, &j->e);
  if (j->st == AC_OK) j->st = ac_host_call(h, "train", 2, args, 1, &r, NULL, &j->e);
  if (j->st == AC_OK && r.type == AC_HOST_STRING && r.len <= MOST) {
    j->n = r.len;
    memcpy(j->bytes, r.s, r.len);
  }
  ac_host_close(h);
  return NULL;
}

static void test_side_by_side(void **state) {
  (void)state;
  static train_job alone[2], both[2];
  ac_err e;
  ac_host *first = NULL;
  assert_ok(open_host(1, &first, &e), e); /* the folder's text is written by one thread */
  ac_host_close(first);
  for (int i = 0; i < 2; i++) {
    alone[i] = (train_job){.seed = 3 + i, .steps = 300, .threads = 1};
    work(&alone[i]);
    assert_ok(alone[i].st, alone[i].e);
    assert_true(alone[i].n > 1000);
  }
  assert_memory_not_equal(alone[0].bytes, alone[1].bytes, alone[0].n);
  for (int round = 0; round < ROUNDS; round++) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
      both[i] = (train_job){.seed = 3 + i, .steps = 300, .threads = 1 + round % 2};
      assert_int_equal(pthread_create(&threads[i], NULL, work, &both[i]), 0);
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
      assert_ok(both[i].st, both[i].e);
      assert_int_equal(both[i].n, alone[i].n);
      assert_memory_equal(both[i].bytes, alone[i].bytes, alone[i].n);
    }
  }
  assert_int_equal(ac_tensor_live(), 0);
}

/* A host may move between threads, one at a time; its tensors may die on any. */
static void *close_elsewhere(void *h) {
  ac_host_close(h);
  return NULL;
}

typedef struct crossing {
  ac_tensor *t;
  double sum;
} crossing;

static void *take(void *arg) {
  crossing *c = arg;
  ac_err e;
  ac_host *h = NULL;
  ac_host_value v = {.type = AC_HOST_TENSOR, .t = c->t}, r = {.type = AC_HOST_NIL};
  for (int i = 0; i < 50 && (h != NULL || open_host(1, &h, &e) == AC_OK); i++)
    if (ac_host_call(h, "total", 1, &v, 1, &r, NULL, &e) == AC_OK) c->sum += r.n;
  ac_tensor_release(c->t);
  ac_host_close(h);
  return NULL;
}

static void test_crossing(void **state) {
  (void)state;
  ac_err e;
  ac_host *h = NULL;
  pthread_t threads[2], last;
  crossing c[2] = {{0}, {0}};
  ac_host_value r;
  assert_ok(open_host(2, &h, &e), e);
  assert_ok(ac_host_run_string(h, "shared = require('accel').ones(1000) function get() return shared end", "cross", 0, NULL, &e), e);
  for (int i = 0; i < 2; i++) {
    assert_ok(ac_host_call(h, "get", 0, NULL, 1, &r, NULL, &e), e);
    c[i].t = r.t;
    assert_int_equal(pthread_create(&threads[i], NULL, take, &c[i]), 0);
  }
  assert_ok(ac_host_run_string(h, "for _ = 1, 200 do assert(total(shared * 2) == 2000) end shared = nil", "cross", 0, NULL, &e), e);
  assert_int_equal(pthread_create(&last, NULL, close_elsewhere, h), 0);
  pthread_join(last, NULL);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < 2; i++) assert_true(c[i].sum == 50 * 1000);
  assert_int_equal(ac_tensor_live(), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_side_by_side), cmocka_unit_test(test_crossing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
