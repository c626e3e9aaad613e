/* The elementary functions of f32 against libm in double: every 977th float, all special values, and random
 * pairs for pow; the 16-bit conversions exhaustively. */
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/vmath.h"

/* The distance between neighbouring floats at x, and at the edge of overflow that below it. */
static double ulp(double x) {
  int e;
  if (fabs(x) > 3.4e38) return ldexp(1, 104);
  frexp(x, &e);
  return ldexp(1, (e < -125 ? -125 : e) - 24);
}

/* Error in ulp; specials have to agree. */
static double error(float got, double want) {
  float rounded = (float)want;
  if (isnan(want)) return isnan(got) ? 0 : INFINITY;
  if (isnan(got)) return INFINITY;
  if (isinf(rounded) || isinf(got)) return got == rounded || fabs(want) > 3.4028234e38 ? 0 : INFINITY;
  if (want == 0) return got == 0 && !signbit(got) == !signbit(want) ? 0 : INFINITY;
  return fabs((double)got - want) / ulp(want);
}

static double sigmoid64(double x) {
  double z = exp(-fabs(x));
  return (x >= 0 ? 1 : z) / (1 + z);
}

typedef struct row {
  const char *name;
  float (*f32)(float);
  double (*f64)(double);
  double bar; /* ulp */
} row;

#define WRAP(name) \
  static float w_##name(float x) { return m_##name(x); }
WRAP(exp)
WRAP(expm1) WRAP(log) WRAP(log1p) WRAP(tanh) WRAP(sigmoid) WRAP(sin) WRAP(cos) WRAP(erf)
WRAP(exp2) WRAP(log2) WRAP(log10)

    static const row rows[] = {
        {"exp", w_exp, exp, 1.1},    {"expm1", w_expm1, expm1, 1.5},
        {"log", w_log, log, 0.9},    {"log1p", w_log1p, log1p, 1.6},
        {"tanh", w_tanh, tanh, 1.5}, {"sigmoid", w_sigmoid, sigmoid64, 2.4},
        {"sin", w_sin, sin, 1.7},    {"cos", w_cos, cos, 1.7},
        {"erf", w_erf, erf, 1.2},    {"exp2", w_exp2, exp2, 1.1},
        {"log2", w_log2, log2, 0.6}, {"log10", w_log10, log10, 0.6},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

static const float specials[] = {
    0.0f,          -0.0f,          1.0f,        -1.0f,       2.0f,         -2.0f,      3.0f,
    -3.0f,         0.5f,           -0.5f,       1.5f,        -1.5f,        33.0f,      -33.0f,
    INFINITY,      -INFINITY,      NAN,         0x1p-149f,   -0x1p-149f,   0x1p-126f,  -0x1p-126f,
    3.4028235e38f, -3.4028235e38f, 16777216.0f, 16777215.0f, -16777215.0f, 8388607.5f, 0.99999994f,
    1.0000001f,    88.72283f,      88.72284f,   -87.33655f,  -103.97208f,  -103.9721f, 1e30f,
    -1e30f};
enum { N_SPECIALS = sizeof specials / sizeof specials[0] };

static void one_argument(void **state) {
  (void)state;
  for (int r = 0; r < N_ROWS; r++) {
    double worst = 0;
    float where = 0;
    for (uint64_t u = 0; u < (UINT64_C(1) << 32) + N_SPECIALS * 977; u += 977) {
      float x = u >> 32 ? specials[(u - (UINT64_C(1) << 32)) / 977] : aci_float32((uint32_t)u);
      double e = error(rows[r].f32(x), rows[r].f64((double)x));
      if (e > worst) worst = e, where = x;
    }
    if (!(worst <= rows[r].bar)) {
      print_error("%s(%a): %g ulp\n", rows[r].name, (double)where, worst);
      fail();
    }
  }
}

static void power(void **state) {
  (void)state;
  uint64_t rng = 88172645463325252u;
  for (int i = 0; i < 2000000 + N_SPECIALS * N_SPECIALS; i++) {
    float x, y;
    if (i < N_SPECIALS * N_SPECIALS) {
      x = specials[i / N_SPECIALS];
      y = specials[i % N_SPECIALS];
    } else if (i & 1) {
      x = aci_float32((uint32_t)ac_test_random(&rng));
      y = aci_float32((uint32_t)ac_test_random(&rng));
    } else { /* results of ordinary size, integer exponents among them */
      x = aci_float32(0x3f000000u + (uint32_t)(ac_test_random(&rng) % 0x2000000u)) * (i & 2 ? 1.0f : -1.0f);
      y = (float)((int)(ac_test_random(&rng) % 4001) - 2000) / (i & 4 ? 64.0f : 32.0f);
    }
    float got = m_pow(x, y);
    double want = pow((double)x, (double)y), e = error(got, want);
    if (fabs(want) < 1.5e-45 && fabs(want) > 0 && (float)fabs(got) <= 0x1p-149f)
      e = 0; /* around the last denormal */
    if (!(e <= 1)) {
      print_error("pow(%a, %a) = %a, expected %a: %g ulp\n", (double)x, (double)y, (double)got, want, e);
      fail();
    }
  }
}

static void turns(void **state) {
  (void)state;
  for (int i = 0; i <= 1 << 20; i++) {
    double u = (double)i / (1 << 20), c = cos(2 * M_PI * u), s = sin(2 * M_PI * u);
    if (i % (1 << 18) != 0) {
      assert_true(error(aci_sin2pif((float)u), s) <= 1.7);
      assert_true(error(aci_cos2pif((float)u), c) <= 1.7);
    } else { /* quarter turns are exact */
      assert_true(fabsf(aci_sin2pif((float)u)) == (i / (1 << 18)) % 2);
      assert_true(fabsf(aci_cos2pif((float)u)) == 1 - (i / (1 << 18)) % 2);
    }
  }
}

/* The value of a 16-bit float with e exponent bits, from its definition. */
static double half_value(uint32_t h, int e_bits) {
  int m_bits = 15 - e_bits, bias = (1 << (e_bits - 1)) - 1, e = (int)(h >> m_bits) & ((1 << e_bits) - 1);
  double m = (double)(h & ((1u << m_bits) - 1)) / (1 << m_bits), sign = h >> 15 ? -1 : 1;
  if (e == (1 << e_bits) - 1) return m == 0 ? sign * INFINITY : NAN;
  return sign * (e == 0 ? ldexp(m, 1 - bias) : ldexp(1 + m, e - bias));
}

static void widening(void **state) {
  (void)state;
  for (uint32_t h = 0; h < 0x10000; h++) {
    double f16 = half_value(h, 5), bf16 = half_value(h, 8);
    assert_true(error(aci_f16_to_f32((uint16_t)h), f16) == 0);
    assert_true(error(aci_bf16_to_f32((uint16_t)h), bf16) == 0);
    if (!isnan(f16)) assert_int_equal(aci_f32_to_f16(aci_f16_to_f32((uint16_t)h)), h);
    else assert_true(isnan(aci_f16_to_f32(aci_f32_to_f16(aci_f16_to_f32((uint16_t)h)))));
    if (!isnan(bf16)) assert_int_equal(aci_f32_to_bf16(aci_bf16_to_f32((uint16_t)h)), h);
    else assert_true(isnan(aci_bf16_to_f32(aci_f32_to_bf16(aci_bf16_to_f32((uint16_t)h)))));
  }
}

/* Between neighbours a and b: just below the middle, the middle (to the even one), just above. */
static void narrowing_one(uint32_t h, uint16_t (*narrow)(float), double (*value)(uint32_t), double beyond) {
  double a = value(h), b = isinf(value(h + 1)) ? beyond : value(h + 1), middle = (a + b) / 2;
  if (isnan(a) || isinf(a)) return;
  float x = (float)middle;
  assert_true((double)x == middle); /* f32 holds every middle */
  assert_int_equal(narrow(x), h & 1 ? h + 1 : h);
  assert_int_equal(narrow(nextafterf(x, 0)), h);
  assert_int_equal(narrow(nextafterf(x, INFINITY)), h + 1);
  assert_int_equal(narrow(-x), (h & 1 ? h + 1 : h) | 0x8000);
}
static double f16_value(uint32_t h) { return half_value(h, 5); }
static double bf16_value(uint32_t h) { return half_value(h, 8); }
static uint16_t narrow_f16(float x) { return aci_f32_to_f16(x); }
static uint16_t narrow_bf16(float x) { return aci_f32_to_bf16(x); }

static void narrowing(void **state) {
  (void)state;
  for (uint32_t h = 0; h < 0x7c00; h++) narrowing_one(h, narrow_f16, f16_value, 65536);
  for (uint32_t h = 0; h < 0x7f7f; h++) narrowing_one(h, narrow_bf16, bf16_value, 0);
  assert_int_equal(narrow_f16(3.4e38f), 0x7c00);
  assert_int_equal(narrow_bf16(3.4028235e38f), 0x7f80);
  assert_int_equal(narrow_bf16(-INFINITY), 0xff80);
}

static void generic_names(void **state) {
  (void)state;
  assert_true(m_exp(1.0) == exp(1.0)); /* doubles go to libm */
  assert_true(sizeof(m_exp(1.0f)) == sizeof(float) && sizeof(m_pow(1.0f, 2.0f)) == sizeof(float));
  assert_true(m_pow(2.0, 0.5) == pow(2.0, 0.5) && m_sqrt(2.0) == sqrt(2.0) && m_sqrt(2.0f) == sqrtf(2.0f));
  assert_true(isnan(m_max(1.0f, NAN)) && isnan(m_max(NAN, 1.0f)) && m_max(1.0, 2.0) == 2.0);
  assert_true(isnan(m_min(1.0, NAN)) && isnan(m_min(NAN, 1.0)) && m_min(1.0f, 2.0f) == 1.0f);
  assert_true(m_rint(2.5f) == 2.0f && m_floor(-0.5f) == -1.0f && m_ceil(0.5) == 1.0 &&
              m_trunc(-1.5f) == -1.0f);
  assert_true(m_fma(0x1.000002p0f, 0x1.000002p0f, -1.0f) == fmaf(0x1.000002p0f, 0x1.000002p0f, -1.0f));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_argument), cmocka_unit_test(power),     cmocka_unit_test(turns),
      cmocka_unit_test(widening),     cmocka_unit_test(narrowing), cmocka_unit_test(generic_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
