/* Memory that runs out at every single place of a training step with a second derivative: each time a plain out_of_memory,
 * nothing leaks, the inputs are as they were, and the same step then gives the same numbers. Fresh and freed memory is poisoned. */
#include "host/autograd/graph.h"

#include "device/pool.h"

enum { N = 6, MAX_T = 32 };

typedef struct step {
  graph *g;
  ac_tensor *x, *w;
  ac_tensor *t[MAX_T]; /* everything made on the way, released together */
  int n;
} step;

static ac_tensor **slot(step *s) { return &s->t[s->n++]; }

/* penalty = sum((d sum(silu(rms_norm(x w) * 3)) / dx)^2), with an in-place write that keeps a copy; then its gradients. */
static ac_status run(step *s, ac_err *e) {
  ac_ctx *c = s->g->c;
  int64_t width = N;
  ac_tensor **xw = slot(s), **norm = slot(s), **written = slot(s), **act = slot(s), **y = slot(s),
            **d = slot(s), **sq = slot(s), **p = slot(s);
  AC_TRY(ac_matmul(c, s->x, s->w, xw, e));
  AC_TRY(ac_rms_norm(c, *xw, &width, 1, NULL, NULL, norm, e));
  AC_TRY(ac_tensor_retain_grad(*norm, e));
  AC_TRY(ac_mul_(c, *norm, ac_operand_tensor(s->w), written, e));
  AC_TRY(ac_silu(c, *norm, act, e));
  AC_TRY(ac_sum(c, *act, NULL, 0, false, NULL, y, e));
  AC_TRY(ac_gradients(c, 1, y, NULL, 1, &s->x, false, &graph_create, d, e));
  AC_TRY(ac_mul(c, ac_operand_tensor(*d), ac_operand_tensor(*d), sq, e));
  AC_TRY(ac_sum(c, *sq, NULL, 0, false, NULL, p, e));
  return ac_backward(c, 1, p, NULL, 0, NULL, NULL, e);
}

static void release(step *s) {
  ac_err e;
  drop_all(s->n, s->t);
  memset(s->t, 0, sizeof s->t);
  s->n = 0;
  assert_ok(ac_tensor_set_grad(s->x, NULL, &e), e);
  assert_ok(ac_tensor_set_grad(s->w, NULL, &e), e);
}

static void every_allocation_fails_once(void **state) {
  graph *g = *state;
  ac_device *dev = ac_ctx_default_device(g->c);
  double vx[N * N], vw[N * N], dx[N * N], dw[N * N], got[N * N];
  uint64_t seed = 3;
  ac_err e;
  for (int i = 0; i < N * N; i++) {
    vx[i] = ac_test_uniform(&seed) - 0.5;
    vw[i] = ac_test_uniform(&seed) + 0.5;
  }
  step s = {.g = g, .x = leaf(g, N, N, vx), .w = leaf(g, N, N, vw)};
  assert_ok(run(&s, &e), e);
  values(ac_tensor_grad(s.x), dx);
  values(ac_tensor_grad(s.w), dw);
  release(&s);
  int64_t live = ac_tensor_live();
  size_t bytes = graph_bytes(g);
  int failures = 0;
  for (int64_t n = 1;; n++) {
    aci_pool_debug_set(dev, true, n);
    ac_status st = run(&s, &e);
    aci_pool_debug_set(dev, true, 0);
    if (st != AC_OK) {
      assert_int_equal(st, AC_OOM);
      assert_true(ac_ctx_grad_enabled(g->c));
      failures++;
    }
    bool through = st == AC_OK;
    if (through) {
      values(ac_tensor_grad(s.x), got);
      assert_memory_equal(got, dx, sizeof dx);
      values(ac_tensor_grad(s.w), got);
      assert_memory_equal(got, dw, sizeof dw);
    }
    release(&s);
    assert_int_equal(ac_tensor_live(), live);
    assert_int_equal(graph_bytes(g), bytes);
    values(s.x, got);
    assert_memory_equal(got, vx, sizeof vx);
    if (through) break;
  }
  assert_true(failures > 40);
  assert_ok(run(&s, &e), e);
  values(ac_tensor_grad(s.w), got);
  assert_memory_equal(got, dw, sizeof dw);
  release(&s);
  drop(s.x, s.w);
}

int main(void) {
  const struct CMUnitTest tests[] = {graph_test(every_allocation_fails_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
