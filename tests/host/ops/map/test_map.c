/* host/ops/map: formulas against libm over dtypes, strides and broadcasting; special values; gradients
 * against differences; what bad arguments say. */
#include "host/ops/opcheck.h"

/* ---- values ---- */
typedef ac_status (*unary)(ac_ctx *, ac_tensor *, ac_tensor **, ac_err *);
static double ref_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double ref_silu(double x) { return x / (1 + exp(-x)); }
static double ref_rsqrt(double x) { return 1 / sqrt(x); }
static double ref_square(double x) { return x * x; }
static double ref_reciprocal(double x) { return 1 / x; }
static double ref_relu(double x) { return x > 0 ? x : 0; }
static double ref_neg(double x) { return -x; }
static double ref_sign(double x) { return (x > 0) - (x < 0); }
static double ref_gelu(double x) { return x * 0.5 * erfc(-x / sqrt(2)); }
static ac_status gelu_erf(ac_ctx *c, ac_tensor *x, ac_tensor **y, ac_err *e) {
  return ac_gelu(c, x, AC_GELU_APPROXIMATE_NONE, y, e);
}

static ac_status round_whole(ac_ctx *c, ac_tensor *x, ac_tensor **out, ac_err *e) {
  return ac_round(c, x, 0, out, e);
}

static const struct {
  const char *name;
  unary fn;
  double (*ref)(double);
  bool positive;
} unaries[] = {{"exp", ac_exp, exp, false},
               {"log", ac_log, log, true},
               {"log1p", ac_log1p, log1p, true},
               {"expm1", ac_expm1, expm1, false},
               {"sqrt", ac_sqrt, sqrt, true},
               {"rsqrt", ac_rsqrt, ref_rsqrt, true},
               {"sin", ac_sin, sin, false},
               {"cos", ac_cos, cos, false},
               {"tanh", ac_tanh, tanh, false},
               {"erf", ac_erf, erf, false},
               {"sigmoid", ac_sigmoid, ref_sigmoid, false},
               {"silu", ac_silu, ref_silu, false},
               {"gelu", gelu_erf, ref_gelu, false},
               {"square", ac_square, ref_square, false},
               {"reciprocal", ac_reciprocal, ref_reciprocal, true},
               {"relu", ac_relu, ref_relu, false},
               {"neg", ac_neg, ref_neg, false},
               {"abs", ac_abs, fabs, false},
               {"sign", ac_sign, ref_sign, false},
               {"floor", ac_floor, floor, false},
               {"ceil", ac_ceil, ceil, false},
               {"trunc", ac_trunc, trunc, false},
               {"round", round_whole, rint, false}};

static void test_unary(void **state) {
  static const ac_dtype dts[] = {AC_F64, AC_F32, AC_BF16, AC_F16};
  static const double tol[] = {1e-14, 1e-6, 8e-3, 1e-3};
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  for (size_t u = 0; u < sizeof unaries / sizeof unaries[0]; u++)
    for (int d = 0; d < 4; d++) {
      ac_tensor *x = oc_rand(&r, AC_F64, OC_SHAPE(37, 1100)), *scaled = NULL, *in = NULL, *turned = NULL,
                *y = NULL;
      const int64_t swap[] = {1, 0};
      assert_ok(ac_mul(r.c, T(x), F(4), &scaled, &r.e), r.e);
      if (unaries[u].positive)
        for (int64_t i = 0; i < scaled->numel; i++)
          ((double *)ac_tensor_data(scaled))[i] = fabs(oc_at(scaled, i)) + 0.01;
      assert_ok(ac_to(r.c, scaled, &dts[d], NULL, &in, &r.e), r.e);
      assert_ok(ac_permute(r.c, in, swap, 2, &turned, &r.e), r.e); /* strided */
      assert_ok(unaries[u].fn(r.c, turned, &y, &r.e), r.e);
      assert_int_equal(ac_tensor_dtype(y), dts[d]);
      for (int64_t i = 0; i < y->numel; i += 7) {
        double want = unaries[u].ref(oc_at(turned, i)), got = oc_at(y, i);
        if (!(fabs(got - want) <= tol[d] * (1 + fabs(want))))
          fail_msg("%s %s(%.17g) is %.17g, not %.17g", ac_dtype_name(dts[d]), unaries[u].name,
                   oc_at(turned, i), got, want);
      }
      ac_tensor_release(y);
      ac_tensor_release(turned);
      ac_tensor_release(in);
      ac_tensor_release(scaled);
      ac_tensor_release(x);
    }
  oc_close(&r);
}

static ac_tensor *of(oc_rig *r, ac_dtype dt, int n, const double *v) {
  ac_tensor *t = NULL, *y = NULL;
  int64_t shape[] = {n};
  assert_ok(ac_tensor_from_host(ac_ctx_default_device(r->c), AC_F64, 1, shape, v, &t, &r->e), r->e);
  if (dt == AC_F64) return t;
  assert_ok(ac_to(r->c, t, &dt, NULL, &y, &r->e), r->e);
  ac_tensor_release(t);
  return y;
}
#define OF(r, dt, ...) of((r), (dt), (int)(sizeof((double[]){__VA_ARGS__}) / 8), (double[]){__VA_ARGS__})

/* y (taken over) has these values and this dtype. */
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

static void test_special(void **state) {
  oc_rig r;
  ac_tensor *y = NULL;
  const ac_operand lo = F(-1), hi = ac_operand_int(2);
  (void)state;
  oc_open(&r, 1);
  ac_tensor *s = OF(&r, AC_F32, NAN, INFINITY, -INFINITY, -2.5, 0, 3);
  ac_tensor *o = OF(&r, AC_F32, 1, NAN, -1, 2, 0, -2);
  ac_tensor *i = OF(&r, AC_I64, 7, -7, 7, -7), *j = OF(&r, AC_I64, 2, 2, -2, -2),
            *zero = OF(&r, AC_I32, 1, 0, 1, 1);
#define RUN(call) assert_ok(call, r.e)
  RUN(ac_relu(r.c, s, &y, &r.e));
  expect(y, AC_F32, NAN, INFINITY, 0, 0, 0, 3);
  RUN(ac_sign(r.c, s, &y, &r.e));
  expect(y, AC_F32, 0, 1, -1, -1, 0, 1);
  RUN(ac_round(r.c, s, 0, &y, &r.e));
  expect(y, AC_F32, NAN, INFINITY, -INFINITY, -2, 0, 3);
  RUN(ac_maximum(r.c, T(s), T(o), &y, &r.e));
  expect(y, AC_F32, NAN, NAN, -1, 2, 0, 3);
  RUN(ac_minimum(r.c, T(s), T(o), &y, &r.e));
  expect(y, AC_F32, NAN, NAN, -INFINITY, -2.5, 0, -2);
  RUN(ac_clamp(r.c, s, &lo, &hi, &y, &r.e));
  expect(y, AC_F32, NAN, 2, -1, -1, 0, 2);
  RUN(ac_clamp(r.c, i, &lo, NULL, &y, &r.e)); /* a float bound makes floats */
  expect(y, AC_F32, 7, -1, 7, -1);
  RUN(ac_lt(r.c, T(s), T(o), &y, &r.e));
  expect(y, AC_BOOL, 0, 0, 1, 1, 0, 0);
  RUN(ac_ne(r.c, T(s), T(s), &y, &r.e));
  expect(y, AC_BOOL, 1, 0, 0, 0, 0, 0);
  RUN(ac_remainder(r.c, T(i), T(j), &y, &r.e));
  expect(y, AC_I64, 1, 1, -1, -1);
  RUN(ac_fmod(r.c, T(i), T(j), &y, &r.e));
  expect(y, AC_I64, 1, -1, 1, -1);
  RUN(ac_remainder(r.c, T(s), F(2), &y, &r.e));
  expect(y, AC_F32, NAN, NAN, NAN, 1.5, 0, 1);
  RUN(ac_pow(r.c, T(j), T(i), &y, &r.e)); /* 2^7, 2^-7, (-2)^7, (-2)^-7 in integers */
  expect(y, AC_I64, 128, 0, -128, 0);
  RUN(ac_div(r.c, T(i), T(j), AC_DIV_ROUNDING_MODE_NONE, &y, &r.e));
  expect(y, AC_F32, 3.5, -3.5, -3.5, 3.5);
  RUN(ac_sub(r.c, T(i), F(0.5), aci_float(1), &y, &r.e));
  expect(y, AC_F32, 6.5, -7.5, 6.5, -7.5);

  assert_fails(ac_remainder(r.c, T(i), T(zero), &y, &r.e), INVALID, "integer division by zero (element 1",
               r.e);
  assert_fails(ac_pow(r.c, T(i), ac_operand_int(-1), &y, &r.e), INVALID, "exponent -1", r.e);
  assert_fails(ac_clamp(r.c, s, NULL, NULL, &y, &r.e), INVALID, "min or max", r.e);
  assert_fails(ac_add(r.c, T(s), T(i), aci_float(1), &y, &r.e), SHAPE, "(6)", r.e);
  assert_fails(ac_where(r.c, i, T(s), T(o), &y, &r.e), DTYPE, "bool, not i64", r.e);
  RUN(ac_lt(r.c, T(s), T(o), &y, &r.e));
  ac_tensor *b = y;
  assert_fails(ac_neg(r.c, b, &y, &r.e), DTYPE, "bool", r.e);
  assert_fails(ac_masked_fill(r.c, i, i, F(0), &y, &r.e), DTYPE, "mask must be bool", r.e);
  assert_fails(ac_full_like(r.c, i, aci_float(INFINITY), NULL, NULL, &y, &r.e), DTYPE, "inf", r.e);
  RUN(ac_where(r.c, b, T(s), F(9), &y, &r.e));
  expect(y, AC_F32, 9, 9, -INFINITY, -2.5, 9, 9);
  RUN(ac_masked_fill(r.c, o, b, F(-INFINITY), &y, &r.e));
  expect(y, AC_F32, 1, NAN, -INFINITY, -INFINITY, 0, -2);
  ac_tensor *all[] = {s, o, i, j, zero, b};
  for (int k = 0; k < 6; k++) ac_tensor_release(all[k]);
  oc_close(&r);
}

/* Broadcast of every layout against an index loop; writing in place through strides. */
static void test_broadcast(void **state) {
  oc_rig r;
  ac_tensor *y = NULL, *row = NULL;
  const int64_t swap[] = {2, 0, 1};
  (void)state;
  oc_open(&r, 2);
  ac_tensor *a = oc_rand(&r, AC_F32, OC_SHAPE(5, 1, 70)), *b = oc_rand(&r, AC_F64, OC_SHAPE(33, 1)),
            *at = NULL;
  assert_ok(ac_sub(r.c, T(a), T(b), aci_float(2), &y, &r.e), r.e);
  assert_int_equal(ac_tensor_dtype(y), AC_F64);
  assert_int_equal(y->numel, 5 * 33 * 70);
  for (int64_t i = 0; i < y->numel; i++) {
    double want = oc_at(a, i / (33 * 70) * 70 + i % 70) - 2 * oc_at(b, i / 70 % 33);
    if (fabs(oc_at(y, i) - want) > 1e-12) fail_msg("element %d", (int)i);
  }
  assert_ok(ac_permute(r.c, y, swap, 3, &at, &r.e), r.e); /* (70, 5, 33) over y's memory */
  assert_ok(ac_select(r.c, at, 1, 2, &row, &r.e), r.e);
  ac_tensor *same = NULL;
  assert_ok(ac_mul_(r.c, row, F(0), &same, &r.e), r.e);
  ac_tensor_release(same);
  for (int64_t i = 0; i < y->numel; i++) assert_true((oc_at(y, i) == 0) == (i / (33 * 70) == 2));
  assert_ok(ac_fill_(r.c, row, aci_float(3), &same, &r.e), r.e);
  ac_tensor_release(same);
  for (int64_t i = 0; i < y->numel; i++) assert_true((oc_at(y, i) == 3) == (i / (33 * 70) == 2));
  ac_tensor *all[] = {a, b, y, at, row};
  for (int k = 0; k < 5; k++) ac_tensor_release(all[k]);
  oc_close(&r);
}

/* The same bits for any number of threads. */
static void test_threads(void **state) {
  double *first = NULL;
  (void)state;
  for (int n = 1; n <= 4; n++) {
    oc_rig r;
    ac_tensor *y = NULL;
    oc_open(&r, n);
    ac_tensor *x = oc_rand(&r, AC_F32, OC_SHAPE(300, 517));
    assert_ok(ac_gelu(r.c, x, AC_GELU_APPROXIMATE_TANH, &y, &r.e), r.e);
    double *v = oc_values(y);
    if (first != NULL) assert_memory_equal(v, first, (size_t)y->numel * 8);
    free(first);
    first = v;
    ac_tensor_release(x);
    ac_tensor_release(y);
    oc_close(&r);
  }
  free(first);
}

/* ---- gradients; inputs are in [-1, 1) ---- */
#define FN(name, expr)                                                         \
  static ac_tensor *name(ac_expr *x, ac_tensor *const *in, const void *user) { \
    ac_tensor *a = in[0], *b = in[1];                                          \
    ac_scalar one = aci_float(1);                                              \
    (void)user;                                                                \
    (void)b;                                                                   \
    (void)one;                                                                 \
    return expr;                                                               \
  }
#define POS(t) x_add(x, T(t), F(1.5), one)
FN(g_unary, x_add(x, T(x_mul(x, T(x_sin(x, a)), T(x_tanh(x, a)))),
                  T(x_mul(x, T(x_sigmoid(x, x_cos(x, a))), T(x_expm1(x, a)))), one))
FN(g_roots, x_mul(x, T(x_mul(x, T(x_sqrt(x, POS(a))), T(x_log(x, POS(a))))),
                  T(x_mul(x, T(x_reciprocal(x, POS(a))), T(x_log1p(x, a))))))
FN(g_rsqrt, x_mul(x, T(x_rsqrt(x, POS(a))), T(x_square(x, a))))
FN(g_relu, x_square(x, x_relu(x, a)))
FN(g_abs, x_mul(x, T(x_abs(x, a)), T(x_erf(x, a))))
FN(g_gelu, x_gelu(x, a, AC_GELU_APPROXIMATE_NONE))
FN(g_gelu_tanh, x_gelu(x, a, AC_GELU_APPROXIMATE_TANH))
FN(g_silu, x_silu(x, a))
FN(g_add,
   x_add(x, T(x_mul(x, T(a), T(b))), T(x_sub(x, T(b), T(x_square(x, a)), aci_float(0.5))), aci_float(-3)))
FN(g_div, x_div(x, T(a), T(POS(b))))
FN(g_rdiv, x_div(x, F(2), T(POS(a))))
FN(g_pow, x_pow(x, T(POS(a)), T(b)))
FN(g_pow3, x_pow(x, T(a), ac_operand_int(3)))
FN(g_pow_base, x_pow(x, F(1.7), T(a)))
FN(g_extreme, x_mul(x, T(x_maximum(x, T(a), T(b))), T(x_minimum(x, T(a), T(b)))))
FN(g_remainder, x_square(x, x_remainder(x, T(POS(a)), T(x_exp(x, b)))))
FN(g_fmod, x_square(x, x_fmod(x, T(POS(a)), T(x_exp(x, b)))))
FN(g_where, x_where(x, x_gt(x, T(a), F(0.1)), T(x_square(x, a)), T(x_exp(x, b))))
FN(g_fill, x_mul(x, T(x_square(x, x_masked_fill(x, a, x_gt(x, T(b), F(0)), F(2)))), T(b)))
static ac_tensor *g_clamp(ac_expr *x, ac_tensor *const *in, const void *user) {
  ac_operand lo = F(-0.4), hi = F(0.6);
  (void)user;
  return x_square(x, x_clamp(x, in[0], &lo, &hi));
}

static void test_gradients(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 1);
#define IN(...) oc_rand(&r, AC_F64, OC_SHAPE(__VA_ARGS__))
  oc_check(&r, g_unary, NULL, IN(2, 3));
  oc_check(&r, g_roots, NULL, IN(2, 3));
  oc_check(&r, g_rsqrt, NULL, IN(2, 3));
  oc_check(&r, g_relu, NULL, IN(2, 3));
  oc_check(&r, g_abs, NULL, IN(2, 3));
  oc_check(&r, g_gelu, NULL, IN(2, 3));
  oc_check(&r, g_gelu_tanh, NULL, IN(2, 3));
  oc_check(&r, g_silu, NULL, IN(2, 3));
  oc_check(&r, g_add, NULL, IN(2, 3), IN(3));
  oc_check(&r, g_div, NULL, IN(2, 1), IN(3));
  oc_check(&r, g_rdiv, NULL, IN(4));
  oc_check(&r, g_pow, NULL, IN(2, 3), IN(2, 1));
  oc_check(&r, g_pow3, NULL, IN(4));
  oc_check(&r, g_pow_base, NULL, IN(4));
  oc_check(&r, g_extreme, NULL, IN(2, 3), IN(1, 3));
  oc_check(&r, g_remainder, NULL, IN(2, 3), IN(3));
  oc_check(&r, g_fmod, NULL, IN(2, 3), IN(3));
  oc_check(&r, g_where, NULL, IN(2, 3), IN(3));
  oc_check(&r, g_fill, NULL, IN(3), IN(2, 3));
  oc_check(&r, g_clamp, NULL, IN(2, 5));
  oc_close(&r);
}

/* Where differences do not help: 0^p, ties, the corner of abs. Slopes as PyTorch defines them. */
static void slope(oc_rig *r, oc_fn fn, ac_tensor *in, int n, const double *want) {
  ac_expr x;
  ac_tensor *g = NULL;
  ac_expr_init(&x, r->c, &r->e);
  assert_ok(ac_tensor_set_requires_grad(in, true, &r->e), r->e);
  ac_tensor *y = x_sum(&x, fn(&x, &in, NULL), NULL, 0, false, NULL);
  assert_ok(x.st, r->e);
  assert_ok(ac_gradients(r->c, 1, &y, NULL, 1, &in, false, NULL, &g, &r->e), r->e);
  double *v = oc_values(g);
  assert_int_equal(g->numel, n);
  assert_close(v, want, n, 1e-12, 0);
  free(v);
  ac_tensor_release(g);
  ac_tensor_release(in);
  ac_expr_end(&x);
}
static ac_tensor *k_pow0(ac_expr *x, ac_tensor *const *in, const void *u) {
  (void)u;
  return x_pow(x, T(in[0]), F(0));
}
static ac_tensor *k_pow1(ac_expr *x, ac_tensor *const *in, const void *u) {
  (void)u;
  return x_pow(x, T(in[0]), F(1));
}
static ac_tensor *k_base0(ac_expr *x, ac_tensor *const *in, const void *u) {
  (void)u;
  return x_pow(x, F(0), T(in[0]));
}
static ac_tensor *k_abs(ac_expr *x, ac_tensor *const *in, const void *u) {
  (void)u;
  return x_abs(x, in[0]);
}
static ac_tensor *k_max(ac_expr *x, ac_tensor *const *in, const void *u) {
  (void)u;
  return x_maximum(x, T(in[0]), F(1));
}
static void test_corners(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 1);
  slope(&r, k_pow0, OF(&r, AC_F64, 0, 2), 2, (double[]){0, 0});
  slope(&r, k_pow1, OF(&r, AC_F64, 0, 2), 2, (double[]){1, 1});
  slope(&r, k_base0, OF(&r, AC_F64, 0, 2), 2, (double[]){0, 0});
  slope(&r, k_abs, OF(&r, AC_F64, 0, -0.0, -3), 3, (double[]){0, 0, -1});
  slope(&r, k_max, OF(&r, AC_F64, 1, 2, 0), 3, (double[]){0.5, 1, 0});
  oc_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_unary),     cmocka_unit_test(test_special),
                                     cmocka_unit_test(test_broadcast), cmocka_unit_test(test_threads),
                                     cmocka_unit_test(test_gradients), cmocka_unit_test(test_corners)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
