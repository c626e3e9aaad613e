/* f32 products in parts of bf16: errors against those of plain products, over layouts, blocks, batches, scaling and
 * bias; what goes the plain way; the same bits with any number of threads. */
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/gemm_impl.h"
#include "device/cpu/onednn.h"

static uint64_t rng = 0x51ed270b7a3c9d01u;
static ac_team *teams[3]; /* of 1, 2 and 5 */

typedef struct problem {
  aci_gemm g;
  float *a[2], *b[2], *c[2], *before, *bias;
  int64_t n_a, n_b, n_c;
} problem;

/* spread: exponents range over 2^-spread .. 2^spread. */
static float *values(int64_t n, int spread) {
  float *p = malloc((size_t)n * sizeof *p);
  assert_non_null(p);
  for (int64_t i = 0; i < n; i++)
    p[i] = (float)ldexp(2 * ac_test_uniform(&rng) - 1,
                        (int)(ac_test_random(&rng) % (unsigned)(2 * spread + 1)) - spread);
  return p;
}

static void open_problem(problem *p, int64_t m, int64_t n, int64_t k, int layout, int spread) {
  *p = (problem){.g = {.in_type = ACI_GEMM_F32,
                       .out_type = ACI_GEMM_F32,
                       .m = m,
                       .n = n,
                       .k = k,
                       .n_batch = 1,
                       .alpha = 1}};
  aci_gemm *g = &p->g;
  const int64_t step = layout & 4 ? 2 : 1;
  g->a_rs = layout & 1 ? step : k * step, g->a_cs = layout & 1 ? m * step : step;
  g->b_rs = layout & 2 ? step : n * step, g->b_cs = layout & 2 ? k * step : step;
  g->c_rs = n + 3;
  p->n_a = m * k * step, p->n_b = k * n * step, p->n_c = m * g->c_rs;
  for (int i = 0; i < 2; i++) {
    p->a[i] = values(p->n_a, spread);
    p->b[i] = values(p->n_b, spread);
    p->c[i] = values(p->n_c, 0);
  }
  p->before = malloc((size_t)p->n_c * sizeof(float));
  assert_non_null(p->before);
  memcpy(p->before, p->c[0], (size_t)p->n_c * sizeof(float));
  p->bias = values(n, 0);
  g->a = (const void *const *)p->a;
  g->b = (const void *const *)p->b;
  g->c = (void *const *)p->c;
}

static void close_problem(problem *p) {
  for (int i = 0; i < 2; i++) free(p->a[i]), free(p->b[i]), free(p->c[i]);
  free(p->before);
  free(p->bias);
}

static void run(problem *p, ac_team *team, bool split) {
  ac_err e;
  for (int i = 0; i < 2; i++) memcpy(p->c[i], p->before, (size_t)p->n_c * sizeof(float));
  aci_gemm_split_force(split);
  assert_string_equal(aci_cpu_gemm_path(&p->g), split ? "split" : "small");
  assert_ok(aci_cpu_gemm(team, &p->g, &e), e);
  aci_gemm_split_force(false);
}

/* Root mean square of the errors of a sample, each relative to its sum of magnitudes. */
static double error(const problem *p, int64_t batch) {
  const aci_gemm *g = &p->g;
  double all = 0;
  int64_t count = 0;
  for (int64_t at = 0; at < g->m * g->n; at += 1 + g->m * g->n / 1500, count++) {
    const int64_t i = at / g->n, j = at % g->n;
    double sum = 0, size = 0;
    for (int64_t k = 0; k < g->k; k++) {
      const double x =
          (double)p->a[batch][i * g->a_rs + k * g->a_cs] * p->b[batch][k * g->b_rs + j * g->b_cs];
      sum += x;
      size += fabs(x);
    }
    const double beta = g->beta == 0 ? 0 : g->beta * p->before[i * g->c_rs + j],
                 bias = g->bias == NULL ? 0 : p->bias[j];
    const double got = p->c[batch][i * g->c_rs + j], want = g->alpha * sum + beta + bias;
    all += pow((got - want) / (fabs(g->alpha) * size + fabs(beta) + fabs(bias)), 2);
  }
  return sqrt(all / (double)count);
}

static void compare(problem *p) {
  run(p, NULL, false);
  double plain[2];
  for (int b = 0; b < p->g.n_batch; b++) plain[b] = error(p, b);
  run(p, NULL, true);
  for (int b = 0; b < p->g.n_batch; b++)
    if (!(error(p, b) <= fmax(2 * plain[b], 0x1p-24))) /* 2^-24: one rounding of f32; AMX sums in another order than FMA */
      fail_msg("%d x %d x %d: error %.3g, plain %.3g", (int)p->g.m, (int)p->g.n, (int)p->g.k, error(p, b),
               plain[b]);
}

static void as_exact(void **state) {
  (void)state;
  /* several blocks of k; of rows or columns at that depth; the least extents */
  static const int64_t size[][3] = {
      {200, 300, 1000}, {65, 70, 12001}, {1500, 40, 1024}, {33, 1601, 1500}, {32, 32, 50000}};
  for (int layout = 0; layout < 8; layout++)
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
      if (layout >= 4 && i != 0) continue;
      problem p;
      open_problem(&p, size[i][0], size[i][1], size[i][2], layout, i % 2 == 0 ? 0 : 8);
      compare(&p);
      close_problem(&p);
    }
}

static void scaled_and_batched(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) {
    problem p;
    open_problem(&p, 150, 260, 1400, i, 3);
    p.g.n_batch = 2;
    p.g.alpha = i == 0 ? 1 : -0.75;
    p.g.beta = i == 1 ? 0 : i == 2 ? 1 : 0.5;
    if (i != 2) {
      p.g.bias = p.bias;
      p.g.bias_type = ACI_GEMM_F32;
    }
    compare(&p);
    close_problem(&p);
  }
}

static void same_bits(void **state) {
  (void)state;
  problem p;
  open_problem(&p, 300, 250, 1100, 1, 2);
  run(&p, NULL, true);
  float *want = malloc((size_t)p.n_c * sizeof *want);
  assert_non_null(want);
  memcpy(want, p.c[0], (size_t)p.n_c * sizeof *want);
  for (int i = 0; i < 3; i++) {
    run(&p, teams[i], true);
    assert_memory_equal(want, p.c[0], (size_t)p.n_c * sizeof *want);
  }
  free(want);
  close_problem(&p);
}

/* Infinities, NaN and numbers at the ends of the range give what plain products give. */
static void other_numbers(void **state) {
  (void)state;
  const float odd[] = {INFINITY, -INFINITY, NAN, 3.4e38F, 2e18F};
  for (int i = 0; i < 10; i++) {
    problem p;
    open_problem(&p, 128, 256, 2000, 0, 0);
    (i < 5 ? p.a[0] : p.b[0])[12345] = odd[i % 5];
    run(&p, teams[1], false);
    float *want = malloc((size_t)p.n_c * sizeof *want);
    assert_non_null(want);
    memcpy(want, p.c[0], (size_t)p.n_c * sizeof *want);
    run(&p, teams[1], true);
    assert_memory_equal(want, p.c[0], (size_t)p.n_c * sizeof *want);
    free(want);
    close_problem(&p);
  }
}

static void small_operands(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    problem p;
    open_problem(&p, 128, 256, 2000, 0, 0);
    const double factor[][2] = {{-120, 100}, {-66, -50}, {-25, -25}};
    for (int64_t k = 0; k < p.n_a; k++) p.a[0][k] = (float)ldexp(p.a[0][k], (int)factor[i][0]);
    for (int64_t k = 0; k < p.n_b; k++) p.b[0][k] = (float)ldexp(p.b[0][k], (int)factor[i][1]);
    compare(&p);
    close_problem(&p);
  }
}

static void only_large_and_asked_for(void **state) {
  (void)state;
  problem p;
  open_problem(&p, 64, 64, 64, 0, 0);
  assert_string_equal(aci_cpu_gemm_path(&p.g), "small");
  aci_gemm_split_force(true);
  assert_string_equal(aci_cpu_gemm_path(&p.g), "small");
  p.g.in_type = p.g.out_type = ACI_GEMM_F64;
  p.g.m = p.g.n = p.g.k = 1000;
  assert_string_equal(aci_cpu_gemm_path(&p.g), "small");
  aci_gemm_split_force(false);
  close_problem(&p);
}

static int setup(void **state) {
  static const int size[] = {1, 2, 5};
  ac_err e;
  (void)state;
  for (int i = 0; i < 3; i++)
    if (ac_team_new(size[i], &teams[i], &e) != AC_OK) return -1;
  return 0;
}
static int teardown(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) ac_team_free(teams[i]);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_exact),       cmocka_unit_test(scaled_and_batched),
      cmocka_unit_test(same_bits),      cmocka_unit_test(other_numbers),
      cmocka_unit_test(small_operands), cmocka_unit_test(only_large_and_asked_for),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
