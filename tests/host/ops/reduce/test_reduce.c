/* host/ops/reduce: sums, extremes and softmax against plain loops over dims, dtypes and strides; the same
 * bits for any number of threads;
 * gradients against differences; what bad arguments say. */
#include "host/ops/opcheck.h"

#include <stdio.h>

/* (4, 3, 5, 2) seen through a permutation, so that no dim but one is where memory has it. */
static ac_tensor *turned(oc_rig *r, ac_dtype dt) {
  const int64_t order[] = {2, 0, 3, 1};
  ac_tensor *x = oc_rand(r, dt, OC_SHAPE(3, 2, 4, 5)), *y = NULL;
  assert_ok(ac_permute(r->c, x, order, 4, &y, &r->e), r->e);
  ac_tensor_release(x);
  return y;
}

/* Position in the output (keepdim layout) of element i of x. */
static int64_t place(const ac_tensor *x, uint32_t mask, int64_t i) {
  int64_t at = 0, unit = 1;
  for (int d = x->ndim - 1; d >= 0; d--) {
    int64_t c = i % x->shape[d];
    i /= x->shape[d];
    if (mask >> d & 1) continue;
    at += c * unit;
    unit *= x->shape[d];
  }
  return at;
}

static void check_all(oc_rig *r, ac_tensor *x, uint32_t mask, double tol) {
  double sum[512] = {0}, big[512], small[512];
  int64_t dims[AC_MAX_DIMS], count = 1;
  int n = 0;
  ac_tensor *s = NULL, *m = NULL, *hi = NULL, *lo = NULL;
  for (int d = 0; d < x->ndim; d++)
    if (mask >> d & 1) {
      count *= x->shape[d];
      dims[n++] = d - (d % 2 ? x->ndim : 0); /* some counted from the end */
    }
  for (int k = 0; k < 512; k++) {
    big[k] = -INFINITY;
    small[k] = INFINITY;
  }
  for (int64_t i = 0; i < x->numel; i++) {
    int64_t o = place(x, mask, i);
    double v = oc_at(x, i);
    sum[o] += v;
    big[o] = fmax(big[o], v);
    small[o] = fmin(small[o], v);
  }
  assert_ok(ac_sum(r->c, x, dims, n, (mask & 2) != 0, NULL, &s, &r->e), r->e);
  assert_ok(ac_mean(r->c, x, dims, n, false, NULL, &m, &r->e), r->e);
  assert_ok(ac_amax(r->c, x, dims, n, true, &hi, &r->e), r->e);
  assert_ok(ac_amin(r->c, x, dims, n, false, &lo, &r->e), r->e);
  assert_int_equal(s->ndim, mask & 2 ? x->ndim : x->ndim - n);
  assert_int_equal(hi->ndim, x->ndim);
  for (int64_t o = 0; o < s->numel; o++) {
    double a[] = {oc_at(s, o), oc_at(m, o)}, b[] = {sum[o], sum[o] / (double)count};
    assert_close(a, b, 2, tol, tol);
    assert_true(oc_at(hi, o) == big[o] && oc_at(lo, o) == small[o]);
  }
  ac_tensor *all[] = {s, m, hi, lo};
  for (int k = 0; k < 4; k++) ac_tensor_release(all[k]);
}

static void test_dims(void **state) {
  static const ac_dtype dts[] = {AC_F64, AC_F32, AC_BF16, AC_F16};
  static const double tol[] = {1e-13, 1e-6, 1e-2, 2e-3};
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  for (int d = 0; d < 4; d++) {
    ac_tensor *t = turned(&r, dts[d]), *c = oc_rand(&r, dts[d], OC_SHAPE(4, 3, 5, 8));
    for (uint32_t mask = 1; mask < 16; mask++) {
      check_all(&r, t, mask, tol[d]);
      check_all(&r, c, mask, tol[d]);
    }
    ac_tensor_release(t);
    ac_tensor_release(c);
  }
  oc_close(&r);
}

/* Long lists, by rows and by columns: values against a sum in long double, and bits against another number
 * of threads. */
static void test_long(void **state) {
  static const struct {
    int64_t rows, cols;
    ac_dtype dt;
    double tol;
  } cases[] = {{1, 300007, AC_F32, 2e-7},  {300007, 1, AC_F32, 2e-7}, {70001, 9, AC_F32, 2e-7},
               {3, 100003, AC_F32, 2e-7},  {5000, 613, AC_F32, 2e-7}, {70001, 9, AC_F64, 1e-14},
               {1, 300007, AC_F64, 1e-14}, {4000, 20, AC_BF16, 5e-3}, {20, 4000, AC_BF16, 5e-3}};
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
    double *first[2] = {NULL, NULL};
    for (int threads = 1; threads <= 3; threads++) {
      oc_rig r;
      oc_open(&r, threads);
      ac_tensor *x = oc_rand(&r, cases[k].dt, OC_SHAPE(cases[k].rows, cases[k].cols));
      for (int64_t dim = 0; dim < 2; dim++) {
        ac_tensor *s = NULL;
        assert_ok(ac_sum(r.c, x, &dim, 1, false, NULL, &s, &r.e), r.e);
        double *v = oc_values(s);
        if (first[dim] != NULL) assert_memory_equal(v, first[dim], (size_t)s->numel * 8);
        for (int64_t o = 0; threads == 1 && o < s->numel; o++) {
          long double sum = 0, size = 0;
          for (int64_t i = 0; i < x->shape[dim]; i++) {
            double e = oc_at(x, dim == 0 ? i * cases[k].cols + o : o * cases[k].cols + i);
            sum += e;
            size += fabs(e);
          }
          if (fabs((double)(v[o] - sum)) > cases[k].tol * (double)size)
            fail_msg("case %d: output %d is %.9g, not %.9Lg", (int)k, (int)o, v[o], sum);
        }
        free(first[dim]);
        first[dim] = v;
        ac_tensor_release(s);
      }
      ac_tensor_release(x);
      oc_close(&r);
    }
    free(first[0]);
    free(first[1]);
  }
}

static ac_tensor *of(oc_rig *r, ac_dtype dt, int ndim, const int64_t *shape, const double *v) {
  ac_tensor *t = NULL, *y = NULL;
  assert_ok(ac_tensor_from_host(ac_ctx_default_device(r->c), AC_F64, ndim, shape, v, &t, &r->e), r->e);
  assert_ok(ac_to(r->c, t, &dt, NULL, &y, &r->e), r->e);
  ac_tensor_release(t);
  return y;
}
#define expect(y, dt, ...)                                     \
  do {                                                         \
    const double want_[] = {__VA_ARGS__};                      \
    double *got_ = oc_values(y);                               \
    assert_int_equal(ac_tensor_dtype(y), dt);                  \
    assert_int_equal((y)->numel, (int64_t)(sizeof want_ / 8)); \
    assert_close(got_, want_, (y)->numel, 1e-6, 0);            \
    free(got_);                                                \
    ac_tensor_release(y);                                      \
  } while (0)

static void test_extremes(void **state) {
  oc_rig r;
  ac_tensor *v = NULL, *at = NULL;
  const int64_t zero = 0, last = -1;
  (void)state;
  oc_open(&r, 2);
  ac_tensor *x =
      of(&r, AC_F32, OC_SHAPE(3, 4), (double[]){1, 5, 5, -2, NAN, 3, NAN, 4, -INFINITY, 0, -0.0, INFINITY});
  ac_tensor *i = of(&r, AC_I16, OC_SHAPE(2, 3), (double[]){3, -7, 3, 3, 9, -7});
#define RUN(call) assert_ok(call, r.e)
  RUN(ac_max(r.c, x, &last, false, &v, &at, &r.e));
  expect(v, AC_F32, 5, NAN, INFINITY);
  expect(at, AC_I64, 1, 0, 3);
  RUN(ac_min(r.c, x, &zero, true, &v, &at, &r.e));
  assert_int_equal(v->ndim, 2);
  expect(v, AC_F32, NAN, 0, NAN, -2);
  expect(at, AC_I64, 1, 2, 1, 0);
  RUN(ac_max(r.c, i, NULL, false, &v, &at, &r.e));
  assert_null(at);
  expect(v, AC_I16, 9);
  RUN(ac_argmin(r.c, i, NULL, false, &v, &r.e));
  expect(v, AC_I64, 1);
  RUN(ac_argmax(r.c, i, &zero, false, &v, &r.e));
  expect(v, AC_I64, 0, 1, 0);
  RUN(ac_sum(r.c, i, NULL, 0, false, NULL, &v, &r.e));
  expect(v, AC_I64, 4);
  ac_dtype f16 = AC_F16;
  RUN(ac_mean(r.c, i, &zero, 1, false, &f16, &v, &r.e));
  expect(v, AC_F16, 3, 1, -2);

  /* the first of equal ones, also when chunks of a long list run apart */
  ac_tensor *long_one = oc_full(&r, AC_F32, 0, OC_SHAPE(300000));
  ((float *)ac_tensor_data(long_one))[299000] = ((float *)ac_tensor_data(long_one))[150001] = 2;
  RUN(ac_argmax(r.c, long_one, NULL, false, &v, &r.e));
  expect(v, AC_I64, 150001);

  ac_tensor *none = oc_full(&r, AC_F32, 0, OC_SHAPE(2, 0, 3));
  const int64_t one = 1, four = 4, twice[] = {0, -3};
  assert_fails(ac_max(r.c, none, NULL, false, &v, &at, &r.e), SHAPE, "(2, 0, 3)", r.e);
  assert_fails(ac_argmax(r.c, none, &one, false, &v, &r.e), SHAPE, "nothing to choose", r.e);
  RUN(ac_max(r.c, none, &zero, false, &v, &at, &r.e)); /* (0, 3): nothing asked for */
  assert_int_equal(v->numel + at->numel, 0);
  ac_tensor_release(v);
  ac_tensor_release(at);
  RUN(ac_sum(r.c, none, &one, 1, false, NULL, &v, &r.e));
  expect(v, AC_F32, 0, 0, 0, 0, 0, 0);
  RUN(ac_mean(r.c, none, &one, 1, false, NULL, &v, &r.e));
  expect(v, AC_F32, NAN, NAN, NAN, NAN, NAN, NAN);
  assert_fails(ac_sum(r.c, none, &four, 1, false, NULL, &v, &r.e), INDEX, "dim 4 is out of range for 3 dims",
               r.e);
  assert_fails(ac_sum(r.c, none, twice, 2, false, NULL, &v, &r.e), INVALID, "appears twice", r.e);
  assert_fails(ac_mean(r.c, i, NULL, 0, false, NULL, &v, &r.e), DTYPE, "not i16", r.e);
  assert_fails(ac_softmax(r.c, i, 0, NULL, &v, &r.e), DTYPE, "not i16", r.e);
  ac_tensor *all[] = {x, i, long_one, none};
  for (int k = 0; k < 4; k++) ac_tensor_release(all[k]);
  oc_close(&r);
}

static void test_softmax(void **state) {
  static const ac_dtype dts[] = {AC_F64, AC_F32, AC_BF16};
  static const double tol[] = {1e-14, 1e-6, 8e-3};
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  for (int d = 0; d < 3; d++)
    for (int64_t dim = 0; dim < 3; dim++) {
      ac_tensor *x = oc_rand(&r, dts[d], OC_SHAPE(3, 65, 4)), *big = NULL, *p = NULL, *l = NULL;
      assert_ok(ac_mul(r.c, T(x), F(dim == 0 ? 1 : 20000), &big, &r.e),
                r.e); /* far beyond what e^x can hold */
      assert_ok(ac_softmax(r.c, big, dim - 3, NULL, &p, &r.e), r.e);
      assert_ok(ac_log_softmax(r.c, big, dim, NULL, &l, &r.e), r.e);
      int64_t inner = dim == 0 ? 260 : dim == 1 ? 4 : 1, n = x->shape[dim];
      for (int64_t i = 0; i < x->numel; i++) {
        int64_t first = i - i / inner % n * inner;
        double m = -INFINITY, s = 0;
        for (int64_t k = 0; k < n; k++) m = fmax(m, oc_at(big, first + k * inner));
        for (int64_t k = 0; k < n; k++) s += exp(oc_at(big, first + k * inner) - m);
        double want[] = {exp(oc_at(big, i) - m) / s, oc_at(big, i) - m - log(s)},
               got[] = {oc_at(p, i), oc_at(l, i)};
        assert_close(got, want, 2, tol[d], tol[d]);
      }
      ac_tensor *all[] = {x, big, p, l};
      for (int k = 0; k < 4; k++) ac_tensor_release(all[k]);
    }
  ac_tensor *inf = of(&r, AC_F32, OC_SHAPE(2, 2), (double[]){-INFINITY, 0, -INFINITY, -INFINITY}), *y = NULL;
  assert_ok(ac_softmax(r.c, inf, 1, NULL, &y, &r.e), r.e);
  expect(y, AC_F32, 0, 1, NAN, NAN);
  ac_tensor_release(inf);
  oc_close(&r);
}

/* ---- gradients ---- */
#define FN(name, expr)                                                         \
  static ac_tensor *name(ac_expr *x, ac_tensor *const *in, const void *user) { \
    static const int64_t swap[] = {1, 2, 0}, outer[] = {0, 2}, mid[] = {1};    \
    ac_tensor *a = x_square(x, in[0]), *t = x_permute(x, a, swap, 3);          \
    const int64_t one = 1;                                                     \
    (void)user;                                                                \
    (void)t;                                                                   \
    (void)outer;                                                               \
    (void)mid;                                                                 \
    (void)one;                                                                 \
    return expr;                                                               \
  }
FN(g_sum, x_square(x, x_sum(x, t, outer, 2, false, NULL)))
FN(g_sum_keep, x_mul(x, T(a), T(x_sum(x, a, mid, 1, true, NULL))))
FN(g_mean, x_square(x, x_mean(x, t, mid, 1, false, NULL)))
FN(g_mean_all, x_mul(x, T(a), T(x_mean(x, t, NULL, 0, false, NULL))))
FN(g_amax, x_mul(x, T(x_amax(x, a, outer, 2, false)), T(x_amin(x, a, outer, 2, false))))
FN(g_max, x_square(x, x_max(x, t, &one, false, NULL)))
FN(g_min, x_square(x, x_min(x, a, &one, true, NULL)))
FN(g_max_all, x_square(x, x_max(x, a, NULL, false, NULL)))
FN(g_softmax, x_softmax(x, x_mul(x, T(t), F(3)), 1, NULL))
FN(g_log_softmax, x_square(x, x_log_softmax(x, t, -1, NULL)))

static void test_gradients(void **state) {
  static const oc_fn fns[] = {g_sum, g_sum_keep, g_mean,    g_mean_all, g_amax,
                              g_max, g_min,      g_max_all, g_softmax,  g_log_softmax};
  oc_rig r;
  (void)state;
  oc_open(&r, 1);
  for (size_t k = 0; k < sizeof fns / sizeof fns[0]; k++) {
    ac_tensor *in[] = {oc_rand(&r, AC_F64, OC_SHAPE(2, 3, 4))};
    char name[8];
    snprintf(name, sizeof name, "fn %d", (int)k);
    oc_check_at(&r, fns[k], NULL, 1, in, name);
  }
  oc_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_dims), cmocka_unit_test(test_long),
                                     cmocka_unit_test(test_extremes), cmocka_unit_test(test_softmax),
                                     cmocka_unit_test(test_gradients)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
