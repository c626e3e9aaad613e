/* Philox against the published known answers of Random123; conversions and normals against libm in higher
 * precision. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "base/philox.h"

static void known_answers(void **state) {
  (void)state;
  static const struct {
    uint64_t key, lo, hi;
    uint32_t out[4];
  } kat[] = {
      {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {0x299f31d0a4093822,
       0x85a308d3243f6a88,
       0x0370734413198a2e,
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (int i = 0; i < 3; i++) {
    aci_u32x4 r = aci_philox(kat[i].key, kat[i].lo, kat[i].hi);
    assert_memory_equal(r.v, kat[i].out, sizeof r.v);
  }
}

static void uniforms(void **state) {
  (void)state;
  assert_true(aci_uniform_f32(0) == 0.0f);
  assert_true(aci_uniform_f32(UINT32_MAX) == 1.0f - 0x1p-24f);
  assert_true(aci_uniform_f32(0x80000000u) == 0.5f);
  assert_true(aci_uniform_f64(0) == 0.0);
  assert_true(aci_uniform_f64(UINT64_MAX) == 1.0 - 0x1p-53);
  double sum = 0, sq = 0;
  enum { N = 1 << 20 };
  for (int i = 0; i < N / 4; i++) {
    aci_u32x4 r = aci_philox(5, (uint64_t)i, 0);
    for (int k = 0; k < 4; k++) {
      double u = aci_uniform_f32(r.v[k]);
      sum += u;
      sq += u * u;
    }
  }
  assert_true(fabs(sum / N - 0.5) < 5 * sqrt(1.0 / 12 / N));
  assert_true(fabs(sq / N - 1.0 / 3) < 5 * sqrt(4.0 / 45 / N));
}

static void bounded(void **state) {
  (void)state;
  static const uint64_t ns[] = {1, 2, 3, 10, 1000003, (uint64_t)1 << 40, UINT64_MAX};
  for (int i = 0; i < 7; i++) {
    for (uint64_t k = 0; k < 2000; k++) {
      aci_u32x4 r = aci_philox(i, k, 9);
      uint64_t x = aci_u64_of(r.v[0], r.v[1]);
      __extension__ unsigned __int128 p = (unsigned __int128)x * ns[i];
      assert_true(aci_uniform_below(x, ns[i]) == (uint64_t)(p >> 64));
    }
    assert_true(aci_uniform_below(UINT64_MAX, ns[i]) == ns[i] - 1);
    assert_true(aci_uniform_below(0, ns[i]) == 0);
  }
}

static double ulps(long double got, long double want, int bits) {
  return want == 0 ? (got == 0 ? 0 : 1e9) : (double)(fabsl(got - want) / ldexpl(1, ilogbl(want) - bits + 1));
}

static void logarithms(void **state) {
  (void)state;
  double worst32 = 0, worst64 = 0;
  for (uint64_t i = 0; i < 300000; i++) {
    aci_u32x4 r = aci_philox(11, i, 1);
    float u = fmaf((float)(r.v[0] >> (i % 32)), 0x1p-32f, 0x1p-33f); /* all magnitudes alike */
    double e = ulps(aci_log_f32(u), logl(u), 24);
    if (e > worst32) worst32 = e;
    double v = fma((double)(aci_u64_of(r.v[1], r.v[2]) >> (11 + i % 53)), 0x1p-53, 0x1p-54);
    e = ulps(aci_log_f64(v), logl(v), 53);
    if (e > worst64) worst64 = e;
  }
  assert_true(worst32 < 1.5);
  assert_true(worst64 < 2);
  assert_true(aci_log_f32(1) == 0 && aci_log_f64(1) == 0);
  assert_true(ulps(aci_log_f32(0x1p-33f), -33 * logl(2), 24) < 1.5);
  assert_true(ulps(aci_log_f64(0x1p-54), -54 * logl(2), 53) < 2);
}

/* Box-Muller in long double, from the same bits. */
static void check_f32(uint32_t a, uint32_t b) {
  float z0, z1;
  aci_normal2_f32(a, b, &z0, &z1);
  long double u = fmaf((float)a, 0x1p-32f, 0x1p-33f), r = sqrtl(-2 * logl(u)),
              t = 2 * acosl(-1) * ((long double)b / 0x1p32L);
  assert_true(fabsl(z0 - r * cosl(t)) < 1e-6L && fabsl(z1 - r * sinl(t)) < 1e-6L);
}

static void check_f64(uint64_t a, uint64_t b) {
  double z0, z1;
  aci_normal2_f64(a, b, &z0, &z1);
  long double u = fma((double)(a >> 11), 0x1p-53, 0x1p-54), r = sqrtl(-2 * logl(u)),
              t = 2 * acosl(-1) * ((long double)b / 0x1p64L);
  assert_true(fabsl(z0 - r * cosl(t)) < 3e-15L && fabsl(z1 - r * sinl(t)) < 3e-15L);
}

static void normals(void **state) {
  (void)state;
  static const uint32_t edge[] = {0,          1,          0x1FFFFFFF, 0x20000000, 0x3FFFFFFF, 0x40000000,
                                  0x5FFFFFFF, 0x60000000, 0x7FFFFFFF, 0x80000000, 0x9FFFFFFF, 0xA0000000,
                                  0xBFFFFFFF, 0xC0000000, 0xDFFFFFFF, 0xE0000000, 0xFFFFFFFF};
  for (size_t i = 0; i < sizeof edge / sizeof edge[0]; i++) {
    for (size_t k = 0; k < sizeof edge / sizeof edge[0]; k++) {
      check_f32(edge[i], edge[k]);
      check_f64((uint64_t)edge[i] << 32 | edge[k], (uint64_t)edge[k] << 32 | edge[i]);
    }
  }
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0, cross = 0;
  enum { N = 500000 };
  for (int i = 0; i < N; i++) {
    aci_u32x4 r = aci_philox(99, (uint64_t)i, 3);
    check_f32(r.v[0], r.v[1]);
    check_f64(aci_u64_of(r.v[0], r.v[1]), aci_u64_of(r.v[2], r.v[3]));
    float a, b;
    aci_normal2_f32(r.v[0], r.v[1], &a, &b);
    m1 += a + b;
    m2 += (double)a * a + (double)b * b;
    m3 += pow(a, 3) + pow(b, 3);
    m4 += pow(a, 4) + pow(b, 4);
    cross += (double)a * b;
  }
  double n = 2.0 * N; /* five standard errors */
  assert_true(fabs(m1 / n) < 5 * sqrt(1 / n));
  assert_true(fabs(m2 / n - 1) < 5 * sqrt(2 / n));
  assert_true(fabs(m3 / n) < 5 * sqrt(15 / n));
  assert_true(fabs(m4 / n - 3) < 5 * sqrt(96 / n));
  assert_true(fabs(cross / N) < 5 * sqrt(1.0 / N));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_answers), cmocka_unit_test(uniforms), cmocka_unit_test(bounded),
      cmocka_unit_test(logarithms),    cmocka_unit_test(normals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
