/* host/ops/map: the f32 formulas of single ops, through the ops and their vector code, against libm in double over
 * every 4099th float; and over random pairs. Errors are counted in the distance of neighbouring floats. */
#include "host/ops/opcheck.h"

enum { STRIDE = 4099, N = (int)((UINT64_C(1) << 32) / STRIDE) };

static double ulp(double x) {
  int e;
  if (fabs(x) > 3.4e38) return ldexp(1, 104);
  frexp(x, &e);
  return ldexp(1, (e < -125 ? -125 : e) - 24);
}

/* Specials have to agree, signs of zero included. */
static double error(float got, double want) {
  if (isnan(want)) return isnan(got) ? 0 : INFINITY;
  if (isnan(got)) return INFINITY;
  if (isinf((float)want) || isinf(got)) return got == (float)want || fabs(want) > 3.4028234e38 ? 0 : INFINITY;
  if (want == 0) return got == 0 && !signbit(got) == !signbit(want) ? 0 : INFINITY;
  return fabs((double)got - want) / ulp(want);
}

static float from_bits(uint32_t u) {
  float x;
  memcpy(&x, &u, 4);
  return x;
}

static double sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }
static double r_softplus(double x) { return x > 20 ? x : log1p(exp(x)); }
static double r_logsigmoid(double x) { return (x < 0 ? x : 0) - log1p(exp(-fabs(x))); }
static double r_mish(double x) {
  double z = exp(x > 50 ? 50 : x), n = z * (z + 2);
  return x * (n / (n + 2));
}
static double r_selu(double x) { return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * expm1(x)); }
static double r_elu(double x) { return x > 0 ? x : expm1(x); }
static double r_softsign(double x) { return isinf(x) ? NAN : x / (1 + fabs(x)); }
static double r_gelu(double x) { return 0.5 * x * erfc(-x / sqrt(2)); }
static double r_hardswish(double x) { return x * (fmin(fmax(x + 3, 0), 6) / 6); }

typedef ac_status (*unary)(ac_ctx *, ac_tensor *, ac_tensor **, ac_err *);
static ac_status elu(ac_ctx *c, ac_tensor *x, ac_tensor **y, ac_err *e) { return ac_elu(c, x, 1, y, e); }
static ac_status gelu(ac_ctx *c, ac_tensor *x, ac_tensor **y, ac_err *e) {
  return ac_gelu(c, x, AC_GELU_APPROXIMATE_NONE, y, e);
}
static ac_status softplus(ac_ctx *c, ac_tensor *x, ac_tensor **y, ac_err *e) { return ac_softplus(c, x, 1, 20, y, e); }

static const struct {
  const char *name;
  unary fn;
  double (*ref)(double);
  double bar;
} rows[] = {{"tan", ac_tan, tan, 3.5},
            {"asin", ac_asin, asin, 1.9},
            {"acos", ac_acos, acos, 1.5},
            {"atan", ac_atan, atan, 1.5},
            {"sinh", ac_sinh, sinh, 3},
            {"cosh", ac_cosh, cosh, 3},
            {"asinh", ac_asinh, asinh, 3},
            {"acosh", ac_acosh, acosh, 3},
            {"atanh", ac_atanh, atanh, 3},
            {"exp2", ac_exp2, exp2, 1.1},
            {"log2", ac_log2, log2, 0.6},
            {"log10", ac_log10, log10, 0.6},
            {"softplus", softplus, r_softplus, 3.5},
            {"logsigmoid", ac_logsigmoid, r_logsigmoid, 3.5},
            {"mish", ac_mish, r_mish, 4.5},
            {"elu", elu, r_elu, 1.6},
            {"selu", ac_selu, r_selu, 3},
            {"softsign", ac_softsign, r_softsign, 1.6},
            {"gelu", gelu, r_gelu, 120}, /* its tail: e^(-x^2 / 2) where x^2 has few digits left */
            {"hardswish", ac_hardswish, r_hardswish, 2}};

static void test_unary(void **state) {
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  ac_tensor *x = NULL;
  assert_ok(ac_tensor_new(ac_ctx_default_device(r.c), AC_F32, OC_SHAPE(N), &x, &r.e), r.e);
  float *v = ac_tensor_data(x);
  for (int64_t i = 0; i < N; i++) v[i] = from_bits((uint32_t)(i * STRIDE));
  for (size_t u = 0; u < sizeof rows / sizeof rows[0]; u++) {
    ac_tensor *y = NULL;
    double worst = 0;
    int64_t at = 0;
    assert_ok(rows[u].fn(r.c, x, &y, &r.e), r.e);
    const float *got = ac_tensor_data(y);
    for (int64_t i = 0; i < N; i++) {
      double want = rows[u].ref((double)v[i]), e = error(got[i], want);
      if (fabs(want) < 1e-36 && fabs((double)got[i] - want) < 1e-42) continue; /* made of denormals */
      if (e > worst) worst = e, at = i;
    }
    if (!(worst <= rows[u].bar)) {
      print_error("%s(%a) = %a, expected %a: %g ulp\n", rows[u].name, (double)v[at], (double)got[at],
                  rows[u].ref((double)v[at]), worst);
      fail();
    }
    ac_tensor_release(y);
  }
  ac_tensor_release(x);
  oc_close(&r);
}

static void test_atan2(void **state) {
  static const float special[] = {0,     -0.0f, 1,    -1,     INFINITY, -INFINITY, NAN,
                                  1e-45f, -1e-45f, 3e38f, -3e38f, 1e-38f, 2,        -2};
  enum { S = sizeof special / sizeof special[0], M = 400000 };
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  ac_tensor *t[2] = {NULL, NULL}, *y = NULL;
  float *v[2];
  for (int k = 0; k < 2; k++) {
    assert_ok(ac_tensor_new(ac_ctx_default_device(r.c), AC_F32, OC_SHAPE(M), &t[k], &r.e), r.e);
    v[k] = ac_tensor_data(t[k]);
    for (int i = 0; i < M; i++) {
      int e = (int)(ac_test_random(&r.random) % 40) - 20;
      float u = (float)ldexp(2 * ac_test_uniform(&r.random) - 1, e);
      v[k][i] = i < S * S ? special[k == 0 ? i / S : i % S] : u;
    }
  }
  assert_ok(ac_atan2(r.c, T(t[0]), T(t[1]), &y, &r.e), r.e);
  const float *got = ac_tensor_data(y);
  for (int i = 0; i < M; i++) {
    double want = atan2((double)v[0][i], (double)v[1][i]), e = error(got[i], want);
    if (!(e <= 1.9))
      fail_msg("atan2(%a, %a) = %a, expected %a", (double)v[0][i], (double)v[1][i], (double)got[i], want);
  }
  for (int k = 0; k < 2; k++) ac_tensor_release(t[k]);
  ac_tensor_release(y);
  oc_close(&r);
}

/* Both gradients of swiglu at once, where values decide: against the formula in double. */
static void test_swiglu(void **state) {
  enum { M = 5003 };
  oc_rig r;
  (void)state;
  oc_open(&r, 2);
  ac_tensor *in[2], *z = NULL, *w = oc_rand(&r, AC_F32, OC_SHAPE(M)), *d[2] = {NULL, NULL};
  for (int k = 0; k < 2; k++) {
    in[k] = oc_rand(&r, AC_F32, OC_SHAPE(M));
    float *v = ac_tensor_data(in[k]);
    for (int i = 0; i < M; i++) v[i] *= 30;
    assert_ok(ac_tensor_set_requires_grad(in[k], true, &r.e), r.e);
  }
  const float *x = ac_tensor_data(in[0]), *y = ac_tensor_data(in[1]), *dz = ac_tensor_data(w);
  assert_ok(ac_swiglu(r.c, in[0], in[1], &z, &r.e), r.e);
  ac_backward_options o = {sizeof o, false, false};
  assert_ok(ac_gradients(r.c, 1, &z, &w, 2, in, false, &o, d, &r.e), r.e);
  for (int i = 0; i < M; i++) {
    double a = (double)x[i], b = (double)y[i], g = (double)dz[i], s = sigmoid(a);
    double want[] = {a * s * b, g * b * s * (1 + a * (1 - s)), g * a * s};
    double got[] = {oc_at(z, i), oc_at(d[0], i), oc_at(d[1], i)};
    assert_close(got, want, 3, 2e-6, 4e-6); /* the slope of silu cancels where it is 0 */
  }
  for (int k = 0; k < 2; k++) {
    ac_tensor_release(in[k]);
    ac_tensor_release(d[k]);
  }
  ac_tensor_release(z);
  ac_tensor_release(w);
  oc_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_unary), cmocka_unit_test(test_atan2),
                                     cmocka_unit_test(test_swiglu)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
