/* Products of few rows, read where they lie: against a double loop, in both layouts and every type; the bits of a row are the same beside
 * other rows, with any team, and where a matrix of f32 is rounded on the way.
 * tier: every change, memory */
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/vmath.h"
#include "device/cpu/gemm.h"
#include "device/cpu/gemm_impl.h"

enum { ROWS = 8 };
static uint64_t rng = 0x2545f4914f6cdd1du;
static ac_team *team;

static int64_t below(int64_t n) { return (int64_t)(ac_test_random(&rng) % (uint64_t)n); }

static void put(aci_gemm_type t, void *p, int64_t i, float v) {
  if (t == ACI_GEMM_F32) ((float *)p)[i] = v;
  else ((uint16_t *)p)[i] = t == ACI_GEMM_BF16 ? aci_f32_to_bf16(v) : aci_f32_to_f16(v);
}

static void *values(aci_gemm_type t, int64_t n) {
  void *p = malloc((size_t)(n * aci_gemm_type_bytes(t)));
  assert_non_null(p);
  for (int64_t i = 0; i < n; i++) put(t, p, i, (float)(2 * ac_test_uniform(&rng) - 1));
  return p;
}

static void run(const aci_gemm *g, ac_team *with) {
  ac_err e;
  assert_true(aci_gemm_few_fits(g));
  assert_ok(aci_cpu_gemm(with, g, &e), e);
}

/* c (m, n; f32) := the product with rows r0.. of A */
static void product(const aci_gemm *like, int64_t r0, int64_t m, const void *b, float *c, ac_team *with) {
  aci_gemm g = *like;
  const void *a = (const char *)like->a[0] + r0 * g.a_rs * aci_gemm_type_bytes(g.in_type);
  void *to = c;
  g.m = m;
  g.a = &a;
  g.b = &b;
  g.c = &to;
  run(&g, with);
}

static void check(aci_gemm_type t, bool by_rows, int64_t n, int64_t k) {
  const int64_t pad = below(2) * 3, ld = (by_rows ? k : n) + pad, lines = by_rows ? n : k, step = 1 + below(2);
  void *a = values(t, ROWS * k * step), *b = values(t, lines * ld - pad), *bias = values(ACI_GEMM_F32, n);
  float *c = malloc((size_t)(3 * ROWS * n) * sizeof *c), *d = c + ROWS * n, *old = d + ROWS * n;
  assert_non_null(c);
  const void *pa = a, *pb = b;
  void *pc = c;
  aci_gemm g = {.in_type = t, .out_type = ACI_GEMM_F32, .m = ROWS, .n = n, .k = k, .a_rs = k * step, .a_cs = step, .b_rs = by_rows ? 1 : ld,
                .b_cs = by_rows ? ld : 1, .c_rs = n, .n_batch = 1, .a = &pa, .b = &pb, .c = &pc, .bias = bias, .bias_type = ACI_GEMM_F32,
                .alpha = 0.5, .beta = -1};
  for (int64_t i = 0; i < ROWS * n; i++) c[i] = old[i] = (float)i;
  run(&g, NULL);
  for (int64_t r = 0; r < ROWS; r++) {
    for (int64_t j = 0; j < n; j++) {
      double sum = 0, most = 0;
      for (int64_t i = 0; i < k; i++) {
        const double p = aci_gemm_load(t, a, (r * k + i) * step) * aci_gemm_load(t, b, by_rows ? j * ld + i : i * ld + j);
        sum += p;
        most += fabs(p);
      }
      const double want = 0.5 * sum - (double)old[r * n + j] + (double)((float *)bias)[j];
      assert_true(fabs((double)c[r * n + j] - want) < 0x1p-23 * ((double)(k / 16) * most + 4 * fabs((double)old[r * n + j]) + 4));
    }
  }
  g.beta = 0;
  product(&g, 0, ROWS, b, c, team);
  for (int64_t r = 0, m; r < ROWS; r += m) { /* in groups of other sizes */
    m = 1 + below(ROWS - r);
    product(&g, r, m, b, d + r * n, r % 2 ? team : NULL);
  }
  assert_memory_equal(c, d, (size_t)(ROWS * n) * sizeof *c);
  if (t == ACI_GEMM_BF16) { /* f32 that rounds to the same */
    float *wide = malloc((size_t)(lines * ld) * sizeof *wide);
    assert_non_null(wide);
    for (int64_t i = 0; i < lines * ld - pad; i++) wide[i] = aci_bf16_to_f32(((uint16_t *)b)[i]) * (1 + (float)below(3) * 0x1p-10f);
    for (int64_t i = 0; i < lines * ld - pad; i++) ((uint16_t *)b)[i] = aci_f32_to_bf16(wide[i]);
    wide[0] = NAN;
    ((uint16_t *)b)[0] = aci_f32_to_bf16(NAN);
    product(&g, 0, ROWS, b, c, NULL);
    g.round_b = true;
    product(&g, 0, ROWS, wide, d, team);
    assert_memory_equal(c, d, (size_t)(ROWS * n) * sizeof *c);
    free(wide);
  }
  free(a);
  free(b);
  free(bias);
  free(c);
}

static void few_rows(void **state) {
  (void)state;
  static const aci_gemm_type types[] = {ACI_GEMM_F32, ACI_GEMM_BF16, ACI_GEMM_F16};
  for (int i = 0; i < 12; i++) {
    check(types[i % 3], i / 3 % 2, 256 + below(70), 256 + below(200));
    check(types[i % 3], i / 3 % 2, 32 * (8 + below(3)), 32 * (8 + below(40)));
  }
  check(ACI_GEMM_F32, false, 2100, 70); /* several tiles of columns */
  check(ACI_GEMM_BF16, false, 4200, 65);
}

static void what_fits(void **state) {
  (void)state;
  const aci_gemm good = {.in_type = ACI_GEMM_BF16, .m = 8, .n = 256, .k = 256, .b_rs = 1, .b_cs = 256, .n_batch = 1};
  assert_true(aci_gemm_few_fits(&good));
  aci_gemm g = good;
  g.m = 9;
  assert_false(aci_gemm_few_fits(&g));
  g = good, g.in_type = ACI_GEMM_F64;
  assert_false(aci_gemm_few_fits(&g));
  g = good, g.b_rs = 2;
  assert_false(aci_gemm_few_fits(&g));
  g = good, g.n = 255;
  assert_false(aci_gemm_few_fits(&g));
  g = good, g.n_batch = 2;
  assert_false(aci_gemm_few_fits(&g));
}

static int setup(void **state) {
  (void)state;
  ac_err e;
  return ac_team_new(3, &team, &e) == AC_OK ? 0 : -1;
}

static int teardown(void **state) {
  (void)state;
  ac_team_free(team);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(few_rows), cmocka_unit_test(what_fits)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
