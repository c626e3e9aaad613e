/* host/ops/optim: updates against the scalar formulas of PyTorch's documentation, in every dtype and stride;
 * clipping by every norm; nothing is written when a call fails. */
#include "host/ops/opcheck.h"

enum { N = 3, STEPS = 5 };

typedef struct lists {
  ac_tensor *p[N], *g[N], *m[N], *v[N], *lr, *step;
} lists;

/* Three tensors: several chunks, a transposed view, a number. */
static ac_tensor *make(oc_rig *r, ac_dtype dt, int i, bool zero) {
  static const int64_t sizes[N][2] = {{170, 130}, {60, 40}, {0, 0}};
  ac_tensor *t =
                zero ? oc_full(r, dt, 0, i == 2 ? 0 : 2, sizes[i]) : oc_rand(r, dt, i == 2 ? 0 : 2, sizes[i]),
            *y = t;
  if (i == 1) {
    assert_ok(ac_t(r->c, t, &y, &r->e), r->e);
    ac_tensor_release(t);
  }
  return y;
}

static void lists_make(oc_rig *r, lists *l, ac_dtype dt) {
  for (int i = 0; i < N; i++) {
    l->p[i] = make(r, dt, i, false);
    l->g[i] = make(r, dt, i, false);
    l->m[i] = make(r, dt, i, true);
    l->v[i] = make(r, dt, i, true);
  }
  l->lr = oc_full(r, AC_F64, 0.01, 0, NULL);
  l->step = oc_full(r, AC_I64, 0, 0, NULL);
}

static void lists_free(lists *l) {
  for (int i = 0; i < N; i++) {
    ac_tensor *all[] = {l->p[i], l->g[i], l->m[i], l->v[i]};
    for (int k = 0; k < 4; k++) ac_tensor_release(all[k]);
  }
  ac_tensor_release(l->lr);
  ac_tensor_release(l->step);
}

/* What the parameters were. */
static double *before[N];
static void keep(const lists *l) {
  for (int i = 0; i < N; i++) before[i] = oc_values(l->p[i]);
}
static void compare(const lists *l, double tol) {
  for (int i = 0; i < N; i++) {
    double *now = oc_values(l->p[i]);
    assert_close(now, before[i], l->p[i]->numel, tol, tol);
    free(now);
    free(before[i]);
  }
}

static double tolerance(ac_dtype dt) { return dt == AC_F64 ? 1e-13 : dt == AC_F32 ? 1e-6 : 0.03; }

static void test_adamw(void **state) {
  static const ac_dtype dts[] = {AC_F64, AC_F32, AC_BF16};
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  for (int k = 0; k < 3; k++)
    for (int maximize = 0; maximize < 2; maximize++) {
      lists l;
      lists_make(&r, &l, dts[k]);
      keep(&l);
      const double lr = 0.01, b1 = 0.8, b2 = 0.95, eps = 1e-6, wd = 0.2;
      for (int s = 0; s < STEPS; s++)
        assert_ok(ac_adamw_step_(r.c, l.p, N, l.g, N, l.m, N, l.v, N, l.lr, l.step, b1, b2, eps, wd, maximize,
                                 NULL, 0, NULL, NULL, &r.e),
                  r.e);
      assert_true(oc_at(l.step, 0) == STEPS);
      for (int i = 0; i < N; i++)
        for (int64_t j = 0; j < l.p[i]->numel; j++) {
          double p = before[i][j], g = (maximize ? -1 : 1) * oc_at(l.g[i], j), m = 0, v = 0;
          for (int s = 1; s <= STEPS; s++) {
            p -= lr * wd * p;
            m = b1 * m + (1 - b1) * g;
            v = b2 * v + (1 - b2) * g * g;
            p -= lr * (m / (1 - pow(b1, s))) / (sqrt(v / (1 - pow(b2, s))) + eps);
          }
          before[i][j] = p;
        }
      compare(&l, tolerance(dts[k]));
      lists_free(&l);
    }
  oc_close(&r);
}

/* L2 in the gradient; AMSGrad's second moment never falls. */
static void test_adam(void **state) {
  static const ac_dtype dts[] = {AC_F64, AC_F32, AC_BF16};
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  for (int k = 0; k < 3; k++)
    for (int amsgrad = 0; amsgrad < 2; amsgrad++) {
      lists l;
      ac_tensor *w[N], *g[2][N];
      lists_make(&r, &l, dts[k]);
      for (int i = 0; i < N; i++) {
        w[i] = make(&r, dts[k], i, true);
        g[0][i] = l.g[i];
        g[1][i] = make(&r, dts[k], i, false);
      }
      keep(&l);
      const double lr = 0.01, b1 = 0.8, b2 = 0.3, eps = 1e-6, wd = 0.2;
      for (int s = 0; s < STEPS; s++)
        assert_ok(ac_adam_step_(r.c, l.p, N, g[s % 2], N, l.m, N, l.v, N, l.lr, l.step, b1, b2, eps, wd,
                                false, amsgrad ? w : NULL, amsgrad ? N : 0, NULL, NULL, &r.e),
                  r.e);
      for (int i = 0; i < N; i++)
        for (int64_t j = 0; j < l.p[i]->numel; j++) {
          double p = before[i][j], m = 0, v = 0, top = 0;
          for (int s = 1; s <= STEPS; s++) {
            double d = oc_at(g[(s - 1) % 2][i], j) + wd * p;
            m = b1 * m + (1 - b1) * d;
            v = b2 * v + (1 - b2) * d * d;
            top = amsgrad ? fmax(top, v) : v;
            p -= lr * (m / (1 - pow(b1, s))) / (sqrt(top / (1 - pow(b2, s))) + eps);
          }
          before[i][j] = p;
        }
      compare(&l, tolerance(dts[k]));
      for (int i = 0; i < N; i++) {
        ac_tensor_release(w[i]);
        ac_tensor_release(g[1][i]);
      }
      lists_free(&l);
    }
  oc_close(&r);
}

static void test_sgd(void **state) {
  static const ac_dtype dts[] = {AC_F64, AC_F32, AC_BF16};
  static const struct {
    double momentum, dampening, decay;
    bool nesterov, maximize;
  } set[] = {{0, 0, 0, false, false},
             {0, 0, 0.1, false, true},
             {0.9, 0.5, 0.01, false, false},
             {0.9, 0, 0.01, true, false}};
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  for (int k = 0; k < 3; k++)
    for (size_t c = 0; c < sizeof set / sizeof *set; c++) {
      lists l;
      lists_make(&r, &l, dts[k]);
      keep(&l);
      for (int s = 0; s < STEPS; s++)
        assert_ok(ac_sgd_step_(r.c, l.p, N, l.g, N, l.m, set[c].momentum != 0 ? N : 0, l.lr, set[c].momentum,
                               set[c].dampening, set[c].decay, set[c].nesterov, set[c].maximize, s == 0,
                               NULL, NULL, &r.e),
                  r.e);
      for (int i = 0; i < N; i++)
        for (int64_t j = 0; j < l.p[i]->numel; j++) {
          double p = before[i][j], buf = 0;
          for (int s = 0; s < STEPS; s++) {
            double g = (set[c].maximize ? -1 : 1) * oc_at(l.g[i], j) + set[c].decay * p;
            if (set[c].momentum != 0) {
              buf = s == 0 ? g : set[c].momentum * buf + (1 - set[c].dampening) * g;
              g = set[c].nesterov ? g + set[c].momentum * buf : buf;
            }
            p -= 0.01 * g;
          }
          before[i][j] = p;
        }
      compare(&l, tolerance(dts[k]));
      lists_free(&l);
    }
  oc_close(&r);
}

static void test_clip(void **state) {
  static const ac_dtype dts[] = {AC_F64, AC_F32, AC_BF16};
  static const double norms[] = {2, 1, 3, 0.5, INFINITY};
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  for (int k = 0; k < 3; k++)
    for (int c = 0; c < 5; c++)
      for (int large = 0; large < 2; large++) {
        lists l;
        lists_make(&r, &l, dts[k]);
        ac_tensor *norm = NULL;
        double want = 0, max_norm = large ? 1e12 : 0.5;
        for (int i = 0; i < N; i++) {
          before[i] = oc_values(l.g[i]);
          for (int64_t j = 0; j < l.g[i]->numel; j++) {
            double a = fabs(before[i][j]);
            want = isinf(norms[c]) ? fmax(want, a) : want + pow(a, norms[c]);
          }
        }
        if (!isinf(norms[c])) want = pow(want, 1 / norms[c]);
        assert_ok(ac_clip_grad_norm_(r.c, l.g, N, max_norm, norms[c], true, &norm, &r.e), r.e);
        assert_int_equal(norm->dtype, dts[k] == AC_F64 ? AC_F64 : AC_F32);
        assert_true(fabs(oc_at(norm, 0) - want) <= (dts[k] == AC_F64 ? 1e-12 : 1e-6) * want);
        double by = fmin(1, max_norm / (want + 1e-6));
        for (int i = 0; i < N; i++) {
          double *now = oc_values(l.g[i]), tol = large              ? 0
                                                 : dts[k] == AC_F64 ? 1e-12
                                                 : dts[k] == AC_F32 ? 1e-6
                                                                    : 4e-3;
          for (int64_t j = 0; j < l.g[i]->numel; j++) before[i][j] *= by;
          assert_close(now, before[i], l.g[i]->numel, tol, 0);
          free(now);
          free(before[i]);
        }
        ac_tensor_release(norm);
        lists_free(&l);
      }
  oc_close(&r);
}

/* Limits keep NaN; an average hits its ends exactly. */
static void test_lists(void **state) {
  static const ac_dtype dts[] = {AC_F64, AC_F32, AC_BF16};
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  for (int k = 0; k < 3; k++) {
    lists l;
    lists_make(&r, &l, dts[k]);
    for (int i = 0; i < N; i++) before[i] = oc_values(l.p[i]);
    assert_ok(ac_clip_grad_value_(r.c, l.p, N, 0.5, &r.e), r.e);
    for (int i = 0; i < N; i++)
      for (int64_t j = 0; j < l.p[i]->numel; j++) before[i][j] = fmax(-0.5, fmin(0.5, before[i][j]));
    compare(&l, 0);
    keep(&l);
    assert_ok(ac_foreach_lerp_(r.c, l.p, N, l.g, N, 0, &r.e), r.e);
    compare(&l, 0);
    for (int i = 0; i < N; i++) before[i] = oc_values(l.g[i]);
    assert_ok(ac_foreach_lerp_(r.c, l.p, N, l.g, N, 1, &r.e), r.e);
    compare(&l, 0);
    lists_free(&l);
  }
  ac_tensor *x = oc_full(&r, AC_F32, NAN, OC_SHAPE(3));
  assert_ok(ac_clip_grad_value_(r.c, &x, 1, 1, &r.e), r.e);
  assert_true(isnan(oc_at(x, 1)));
  assert_fails(ac_clip_grad_value_(r.c, &x, 1, -1, &r.e), INVALID, "clip_value must not be negative, got -1",
               r.e);
  ac_tensor_release(x);
  oc_close(&r);
}

static double found_after(oc_rig *r, ac_tensor *g, double factor) {
  ac_tensor *found = oc_full(r, AC_F32, 0, 0, NULL), *by = oc_full(r, AC_F64, factor, 0, NULL);
  assert_ok(ac_amp_foreach_unscale_(r->c, &g, 1, found, by, &r->e), r->e);
  double is = oc_at(found, 0);
  ac_tensor_release(found);
  ac_tensor_release(by);
  return is;
}

/* Values, and the finite flag: every place of a tensor of several chunks, and what is finite only before it is rounded.
 * A flag that is set stays. */
static void test_unscale(void **state) {
  static const ac_dtype dts[] = {AC_F64, AC_F32, AC_BF16, AC_F16};
  static const double bad[] = {INFINITY, -INFINITY, NAN};
  oc_rig r;
  (void)state;
  oc_open(&r, 3);
  for (int k = 0; k < 3; k++) {
    lists l;
    lists_make(&r, &l, dts[k]);
    for (int i = 0; i < N; i++) {
      before[i] = oc_values(l.p[i]);
      for (int64_t j = 0; j < l.p[i]->numel; j++) before[i][j] *= 0.125;
    }
    ac_tensor *found = oc_full(&r, AC_F32, 0, 0, NULL), *by = oc_full(&r, AC_F32, 0.125, OC_SHAPE(1));
    assert_ok(ac_amp_foreach_unscale_(r.c, l.p, N, found, by, &r.e), r.e);
    compare(&l, 0);
    assert_true(oc_at(found, 0) == 0);
    assert_ok(ac_amp_foreach_unscale_(r.c, NULL, 0, found, by, &r.e), r.e);
    lists_free(&l);
    ac_tensor_release(found);
    ac_tensor_release(by);
  }
  static const int64_t at[] = {0, 1, 16383, 16384, 40000, 49999};
  for (int k = 0; k < 4; k++)
    for (int b = 0; b < 3; b++)
      for (int i = 0; i < 6; i++) {
        ac_tensor *x = oc_full(&r, dts[k], 1, OC_SHAPE(50000)), *one = NULL, *same = NULL;
        assert_ok(ac_narrow(r.c, x, 0, at[i], 1, &one, &r.e), r.e);
        assert_ok(ac_fill_(r.c, one, (ac_scalar){.kind = AC_SCALAR_FLOAT, .f = bad[b]}, &same, &r.e), r.e);
        ac_tensor_release(same);
        assert_true(found_after(&r, x, 0.5) == 1);
        assert_true(found_after(&r, x, 0) == 1); /* 0 times it is NaN */
        ac_tensor_release(one);
        ac_tensor_release(x);
      }
  static const struct {
    ac_dtype t;
    double x, by, found;
  } edge[] = {{AC_F16, 65504, 1, 0},     {AC_F16, 32768, 1.999, 0}, {AC_F16, 32768, 2, 1},
              {AC_F32, 3e38, 1, 0},      {AC_F32, 3e38, 2, 1},      {AC_BF16, 3.3e38, 1, 0},
              {AC_BF16, 3.3e38, 1.5, 1}, {AC_F64, 3e38, 2, 0}};
  for (int i = 0; i < 8; i++) {
    ac_tensor *x = oc_full(&r, edge[i].t, edge[i].x, OC_SHAPE(3));
    assert_true(found_after(&r, x, edge[i].by) == edge[i].found);
    assert_true(!isfinite(oc_at(x, 2)) == (edge[i].found == 1));
    ac_tensor_release(x);
  }
  oc_close(&r);
}

/* PyTorch's rule, written out. */
static void test_update_scale(void **state) {
  static const double found[] = {0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0},
                      want[] = {8, 8, 4, 4, 4, 8, 8, 8, 16, 8, 4, 4},
                      count[] = {1, 2, 0, 1, 2, 0, 1, 2, 0, 0, 0, 1};
  oc_rig r;
  (void)state;
  oc_open(&r, 1);
  ac_tensor *scale = oc_full(&r, AC_F32, 8, 0, NULL), *n = oc_full(&r, AC_I32, 0, 0, NULL);
  for (int i = 0; i < 12; i++) {
    ac_tensor *f = oc_full(&r, AC_F32, found[i], 0, NULL);
    assert_ok(ac_amp_update_scale_(r.c, scale, n, f, 2, 0.5, 3, &r.e), r.e);
    assert_true(oc_at(scale, 0) == want[i] && oc_at(n, 0) == count[i]);
    ac_tensor_release(f);
  }
  ac_tensor *good = oc_full(&r, AC_F32, 0, 0, NULL), *top = oc_full(&r, AC_F32, 3e38, 0, NULL);
  assert_ok(ac_amp_update_scale_(r.c, top, n, good, 2, 0.5, 1, &r.e), r.e); /* not beyond what is finite */
  assert_true(oc_at(top, 0) == (double)3e38f && oc_at(n, 0) == 0);
  assert_fails(ac_amp_update_scale_(r.c, top, n, good, 2, 0.5, 0, &r.e), INVALID,
               "growth_interval must be at least 1", r.e);
  assert_fails(ac_amp_update_scale_(r.c, n, n, good, 2, 0.5, 1, &r.e), DTYPE, "scale is i32", r.e);
  ac_tensor *all[] = {scale, n, good, top};
  for (int i = 0; i < 4; i++) ac_tensor_release(all[i]);
  oc_close(&r);
}

/* Norm and scaled gradients have the same bits with 1 thread and with 4. */
static void test_threads(void **state) {
  oc_rig one, four;
  (void)state;
  oc_open(&one, 1);
  oc_open(&four, 4);
  ac_tensor *a = oc_rand(&one, AC_F32, OC_SHAPE(400, 333)), *b = oc_rand(&four, AC_F32, OC_SHAPE(400, 333)),
            *na = NULL, *nb = NULL;
  assert_ok(ac_clip_grad_norm_(one.c, &a, 1, 1, 2, false, &na, &one.e), one.e);
  assert_ok(ac_clip_grad_norm_(four.c, &b, 1, 1, 2, false, &nb, &four.e), four.e);
  oc_same(na, nb, 0, 0);
  oc_same(a, b, 0, 0);
  ac_tensor *all[] = {a, b, na, nb};
  for (int i = 0; i < 4; i++) ac_tensor_release(all[i]);
  ac_ctx_free(one.c);
  oc_close(&four);
}

static void test_errors(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 1);
  lists l;
  lists_make(&r, &l, AC_F32);
  ac_tensor *norm = NULL, *other = l.g[0];
  keep(&l);
#define STEP(ng, lr, step) \
  ac_adamw_step_(r.c, l.p, N, l.g, ng, l.m, N, l.v, N, lr, step, 0.9, 0.99, 1e-8, 0, false, NULL, 0, NULL, NULL, &r.e)
  assert_fails(STEP(2, l.lr, l.step), INVALID, "2 grads for 3 params", r.e);
  assert_fails(STEP(3, other, l.step), SHAPE, "lr must have one element", r.e);
  l.g[0] = l.g[1];
  assert_fails(STEP(3, l.lr, l.step), SHAPE, "grads: tensor 1 has shape (40, 60), its parameter (170, 130)",
               r.e);
  l.g[0] = other;
  assert_ok(ac_tensor_set_requires_grad(l.p[0], true, &r.e), r.e);
  assert_fails(STEP(3, l.lr, l.step), GRAD, "no_grad", r.e);
  ((float *)ac_tensor_data(other))[5] = NAN;
  assert_fails(ac_clip_grad_norm_(r.c, l.g, N, 1, 2, true, &norm, &r.e), INVALID, "nothing was changed", r.e);
  assert_true(oc_at(l.step, 0) == 0);
  compare(&l, 0);
  lists_free(&l);
  oc_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_adamw),   cmocka_unit_test(test_adam),         cmocka_unit_test(test_sgd),
      cmocka_unit_test(test_lists),   cmocka_unit_test(test_clip),         cmocka_unit_test(test_threads),
      cmocka_unit_test(test_unscale), cmocka_unit_test(test_update_scale), cmocka_unit_test(test_errors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
