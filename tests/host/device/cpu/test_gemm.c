/* The matrix product against a plain double (or 64-bit integer) loop: random shapes, strides, types, batches,
 * alpha, beta and bias; every shape again with other teams, where each bit must be the same. */
#include "support/test.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/vmath.h"
#include "device/cpu/gemm.h"
#include "device/cpu/gemm_impl.h"
#include "device/cpu/isa.h"
#include "device/cpu/onednn.h"

static uint64_t rng = 0x9e3779b97f4a7c15u;

static int64_t below(int64_t n) { return (int64_t)(ac_test_random(&rng) % (uint64_t)n); }

static bool is_float(aci_gemm_type t) { return t <= ACI_GEMM_F16; }

static void put(aci_gemm_type t, void *p, int64_t i, double v) {
  switch (t) {
    case ACI_GEMM_F64: ((double *)p)[i] = v; break;
    case ACI_GEMM_F32: ((float *)p)[i] = (float)v; break;
    case ACI_GEMM_BF16: ((uint16_t *)p)[i] = aci_f32_to_bf16((float)v); break;
    case ACI_GEMM_F16: ((uint16_t *)p)[i] = aci_f32_to_f16((float)v); break;
    case ACI_GEMM_I64: ((int64_t *)p)[i] = (int64_t)v; break;
    case ACI_GEMM_I32: ((int32_t *)p)[i] = (int32_t)v; break;
    case ACI_GEMM_I16: ((int16_t *)p)[i] = (int16_t)v; break;
    case ACI_GEMM_I8: ((int8_t *)p)[i] = (int8_t)v; break;
    case ACI_GEMM_U8: ((uint8_t *)p)[i] = (uint8_t)v; break;
  }
}

/* n values, in a block of exactly their size, so that a sanitizer sees any overrun. */
static void *values(aci_gemm_type t, int64_t n) {
  size_t bytes = (size_t)(n * aci_gemm_type_bytes(t));
  void *p = malloc(bytes > 0 ? bytes : 1);
  assert_non_null(p);
  for (int64_t i = 0; i < n; i++)
    put(t, p, i,
        is_float(t) ? 2 * ac_test_uniform(&rng) - 1 : (double)(below(16) - (t == ACI_GEMM_U8 ? 0 : 8)));
  return p;
}

typedef struct problem {
  aci_gemm g;
  const void *a[4], *b[4];
  void *c[4];
  void *before[4]; /* C as it was */
  int64_t c_len;
} problem;

/* Strides of a rows x cols view: row-major, column-major, padded, or every second element. Returns the
 * extent. */
static int64_t view(int64_t rows, int64_t cols, int64_t *rs, int64_t *cs) {
  int64_t pad = below(3) == 0 ? below(5) : 0, step = below(6) == 0 ? 2 : 1;
  if (below(2)) *cs = step, *rs = cols * step + pad;
  else *rs = step, *cs = rows * step + pad;
  return rows == 0 || cols == 0 ? 0 : (rows - 1) * *rs + (cols - 1) * *cs + 1;
}

static void problem_new(problem *p, aci_gemm_type in, aci_gemm_type out, int64_t m, int64_t n, int64_t k,
                        int64_t n_batch) {
  memset(p, 0, sizeof *p);
  aci_gemm *g = &p->g;
  *g = (aci_gemm){.in_type = in, .out_type = out, .m = m, .n = n, .k = k, .n_batch = n_batch, .alpha = 1};
  int64_t a_len = view(m, k, &g->a_rs, &g->a_cs), b_len = view(k, n, &g->b_rs, &g->b_cs);
  g->c_rs = n + (below(3) == 0 ? below(9) : 0);
  p->c_len = m == 0 || n == 0 ? 0 : (m - 1) * g->c_rs + n;
  for (int64_t i = 0; i < n_batch; i++) {
    p->a[i] = i > 0 && below(3) == 0 ? p->a[0] : values(in, a_len); /* some entries broadcast */
    p->b[i] = i > 0 && below(3) == 0 ? p->b[0] : values(in, b_len);
    p->c[i] = values(out, p->c_len);
    size_t bytes = (size_t)(p->c_len * aci_gemm_type_bytes(out));
    p->before[i] = malloc(bytes + 1);
    assert_non_null(p->before[i]);
    memcpy(p->before[i], p->c[i], bytes);
  }
  g->a = p->a;
  g->b = p->b;
  g->c = p->c;
  if (below(3) == 0) g->alpha = is_float(in) ? 0.75 : 3;
  if (below(3) == 0) g->beta = below(2) ? 1 : is_float(in) ? -0.5 : 2;
  if (below(3) == 0) {
    static const aci_gemm_type narrow[] = {ACI_GEMM_F32, ACI_GEMM_BF16, ACI_GEMM_F16};
    g->bias_type = in == ACI_GEMM_F64 || !is_float(in) || in == ACI_GEMM_F32 ? in : narrow[below(3)];
    g->bias = values(g->bias_type, n);
  }
  if (g->beta == 0) /* C must not be read: NaN would show */
    for (int64_t i = 0; i < n_batch; i++)
      for (int64_t j = 0; is_float(out) && j < p->c_len; j++) put(out, p->c[i], j, NAN);
}

static void problem_free(problem *p) {
  for (int64_t i = 0; i < p->g.n_batch; i++) {
    if (i == 0 || p->a[i] != p->a[0]) free((void *)p->a[i]);
    if (i == 0 || p->b[i] != p->b[0]) free((void *)p->b[i]);
    free(p->c[i]);
    free(p->before[i]);
  }
  free((void *)p->g.bias);
}

static double eps_of(aci_gemm_type t) {
  return t == ACI_GEMM_F64    ? DBL_EPSILON
         : t == ACI_GEMM_F32  ? FLT_EPSILON
         : t == ACI_GEMM_BF16 ? 0x1p-8
                              : 0x1p-11;
}

static void describe(const problem *p, const char *what) {
  const aci_gemm *g = &p->g;
  print_error("%s: types %d -> %d, %lld x %lld x %lld, batch %lld, a (%lld,%lld) b (%lld,%lld) c %lld, alpha "
              "%g beta %g bias %d\n",
              what, (int)g->in_type, (int)g->out_type, (long long)g->m, (long long)g->n, (long long)g->k,
              (long long)g->n_batch, (long long)g->a_rs, (long long)g->a_cs, (long long)g->b_rs,
              (long long)g->b_cs, (long long)g->c_rs, g->alpha, g->beta,
              g->bias == NULL ? -1 : (int)g->bias_type);
}

/* A rows x cols view as one dense block of doubles. */
static double *doubles(aci_gemm_type t, const void *p, int64_t rows, int64_t cols, int64_t rs, int64_t cs) {
  double *out = malloc((size_t)(rows * cols) * sizeof *out + 1);
  assert_non_null(out);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) out[i * cols + j] = aci_gemm_load(t, p, i * rs + j * cs);
  return out;
}

/* Every element within the worst rounding of a sum of k terms in the accumulator plus one rounding of the
 * result. */
static void verify(const problem *p) {
  const aci_gemm *g = &p->g;
  double acc_eps = g->in_type == ACI_GEMM_F64 ? DBL_EPSILON : FLT_EPSILON;
  for (int64_t b = 0; b < g->n_batch; b++) {
    double *x = doubles(g->in_type, g->a[b], g->m, g->k, g->a_rs, g->a_cs);
    double *y = doubles(g->in_type, g->b[b], g->n, g->k, g->b_cs, g->b_rs);
    for (int64_t i = 0; i < g->m; i++)
      for (int64_t j = 0; j < g->n; j++) {
        int64_t at = i * g->c_rs + j;
        double sum = 0, size = 0;
        for (int64_t k = 0; k < g->k; k++) {
          const double z = x[i * g->k + k] * y[j * g->k + k];
          sum += z;
          size += fabs(z);
        }
        const int64_t isum = is_float(g->in_type) ? 0 : (int64_t)sum; /* of integers below 2^53: exact */
        double c = g->beta == 0 ? 0 : g->beta * aci_gemm_load(g->out_type, p->before[b], at);
        double bias = g->bias == NULL ? 0 : aci_gemm_load(g->bias_type, g->bias, j);
        double want = g->alpha * sum + c + bias, got = aci_gemm_load(g->out_type, g->c[b], at);
        if (!is_float(g->in_type)) {
          union {
            int64_t v;
            char bytes[8];
          } want_bits = {0}, got_bits = {0};
          put(g->out_type, want_bits.bytes, 0,
              (double)((int64_t)g->alpha * isum + (int64_t)c + (int64_t)bias));
          put(g->out_type, got_bits.bytes, 0, got);
          if (g->out_type == ACI_GEMM_I8 || g->out_type == ACI_GEMM_U8 || g->out_type == ACI_GEMM_I16) {
            /* conversion from double does not wrap: compare modulo the type's size */
            int64_t v = (int64_t)g->alpha * isum + (int64_t)c + (int64_t)bias, w = (int64_t)got;
            int bits = 8 * aci_gemm_type_bytes(g->out_type);
            if (((uint64_t)(v - w) & ((1u << bits) - 1)) != 0) describe(p, "integer"), fail();
          } else if (want_bits.v != got_bits.v) {
            describe(p, "integer"), fail();
          }
          continue;
        }
        double allowed = (acc_eps * ((double)g->k + 3) * (fabs(g->alpha) * size + fabs(c) + fabs(bias))) / 2 +
                         eps_of(g->out_type) * fabs(want) + (g->out_type == ACI_GEMM_F16 ? 0x1p-25 : 1e-30);
        if (!(fabs(got - want) <= allowed)) {
          describe(p, "result");
          print_error("  [%lld][%lld,%lld] = %.9g, expected %.9g, allowed %.3g\n", (long long)b, (long long)i,
                      (long long)j, got, want, allowed);
          fail();
        }
      }
    free(x);
    free(y);
  }
}

static ac_team *teams[4]; /* of 1, 2, 3 and 7 */

static int setup(void **state) {
  (void)state;
  static const int sizes[4] = {1, 2, 3, 7};
  ac_err e;
  for (int i = 0; i < 4; i++) assert_ok(ac_team_new(sizes[i], &teams[i], &e), e);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) ac_team_free(teams[i]);
  return 0;
}

static void reset_c(problem *p) {
  for (int64_t i = 0; i < p->g.n_batch; i++)
    if (p->g.beta != 0)
      memcpy(p->c[i], p->before[i], (size_t)(p->c_len * aci_gemm_type_bytes(p->g.out_type)));
}

/* The results, and their bits on teams of several sizes. Frees p. */
static void run_problem(problem *p) {
  ac_err e;
  const int64_t n_batch = p->g.n_batch;
  assert_ok(aci_cpu_gemm(NULL, &p->g, &e), e);
  verify(p);
  size_t bytes = (size_t)(p->c_len * aci_gemm_type_bytes(p->g.out_type));
  char *first[4];
  for (int64_t i = 0; i < n_batch; i++) {
    first[i] = malloc(bytes + 1);
    assert_non_null(first[i]);
    memcpy(first[i], p->c[i], bytes);
  }
  for (int t = 0; t < 4; t++) {
    reset_c(p);
    assert_ok(aci_cpu_gemm(teams[t], &p->g, &e), e);
    for (int64_t i = 0; i < n_batch; i++)
      if (memcmp(first[i], p->c[i], bytes) != 0) {
        describe(p, "bits differ between teams");
        fail();
      }
  }
  for (int64_t i = 0; i < n_batch; i++) free(first[i]);
  problem_free(p);
}

static void run_case(aci_gemm_type in, aci_gemm_type out, int64_t m, int64_t n, int64_t k, int64_t n_batch) {
  problem p;
  problem_new(&p, in, out, m, n, k, n_batch);
  run_problem(&p);
}

static const aci_gemm_type pairs[][2] = {
    {ACI_GEMM_F32, ACI_GEMM_F32},  {ACI_GEMM_F64, ACI_GEMM_F64}, {ACI_GEMM_BF16, ACI_GEMM_BF16},
    {ACI_GEMM_BF16, ACI_GEMM_F32}, {ACI_GEMM_F16, ACI_GEMM_F16}, {ACI_GEMM_F16, ACI_GEMM_F32},
    {ACI_GEMM_I64, ACI_GEMM_I64},  {ACI_GEMM_I32, ACI_GEMM_I32}, {ACI_GEMM_I16, ACI_GEMM_I16},
    {ACI_GEMM_I8, ACI_GEMM_I8},    {ACI_GEMM_U8, ACI_GEMM_U8},
};
enum { N_PAIRS = sizeof pairs / sizeof pairs[0] };

static void small_shapes(void **state) {
  (void)state;
  for (int r = 0; r < 1500; r += ac_test_every(7)) {
    const aci_gemm_type *t = pairs[r % N_PAIRS];
    run_case(t[0], t[1], 1 + below(40), 1 + below(70), 1 + below(50), 1 + below(4));
  }
}

static void skinny_shapes(void **state) {
  (void)state;
  for (int r = 0; r < 300; r += ac_test_every(5)) {
    const aci_gemm_type *t = pairs[r % 6];
    int64_t thin = 1 + below(4), a = 1 + below(300), b = 1 + below(300);
    switch (below(3)) {
      case 0: run_case(t[0], t[1], thin, a, b, 1 + below(3)); break;
      case 1: run_case(t[0], t[1], a, thin, b, 1 + below(3)); break;
      default: run_case(t[0], t[1], a, b, thin, 1 + below(3)); break;
    }
  }
}

/* Several blocks of k, of rows and of columns, and all tails; the last ones are large enough for every path.
 */
static void blocked_shapes(void **state) {
  (void)state;
  for (int r = 0; r < 36; r += ac_test_every(5)) {
    const aci_gemm_type *t = pairs[r % 6];
    run_case(t[0], t[1], 60 + below(150), 60 + below(150), 300 + below(900), 1 + below(2));
  }
  for (int r = 0; r < 12; r += ac_test_every(5))
    run_case(pairs[r % 6][0], pairs[r % 6][1], 250 + below(20), 530 + below(40), 120 + below(30), 1);
}

/* k in groups, two products of a batch: sums that wait in C (two of three cases, with and without what was there) and
 * beside it. The largest team has B packed for all, groups being cut by its bytes; the others take tiles of all rows. */
static void k_in_groups(void **state) {
  (void)state;
  for (int r = 0; r < 18; r += ac_test_every(5)) {
    const aci_gemm_type in = pairs[r % 6][0], out = pairs[r % 6][1];
    const int64_t n = 230, k = (9 << 20) / (n * aci_gemm_kernel_for(in)->bytes);
    problem p;
    problem_new(&p, in, out, 33, n, k + below(20), 2);
    free((void *)p.g.bias);
    p.g.bias = NULL;
    p.g.alpha = 1;
    p.g.beta = r / 6 == 0 ? 0 : 1;
    if (r / 6 == 2) {
      p.g.alpha = 0.75;
      p.g.beta = -0.5;
      p.g.bias_type = in;
      p.g.bias = values(in, n);
    }
    reset_c(&p);
    run_problem(&p);
  }
}

/* ... and an A that is packed for one group at a time. */
static void long_k(void **state) {
  (void)state;
  for (int r = 0; r < 3; r++) run_case(pairs[r % 3][0], pairs[r % 3][1], 500, 33 + below(30), 8400 + below(30), 1);
}

/* A few rows times matrices of all layouts, the transposed ones by the path that swaps the sides. */
static void few_rows(void **state) {
  (void)state;
  for (int r = 0; r < 60; r += ac_test_every(7))
    run_case(pairs[r % 6][0], pairs[r % 6][1], 3 + below(32), 28 + below(400), 250 + below(700), 1);
  for (int r = 0; r < 24; r += ac_test_every(5)) /* several panels, the last one whole, half or less */
    run_case(pairs[r % 6][0], pairs[r % 6][1], 33 + below(96), 28 + below(800), 250 + below(500), 1);
}

/* Both sides swapped or not: the same bits. (k x n) lies once transposed, once as it is. */
static void swapped_sides_give_the_same_bits(void **state) {
  (void)state;
  ac_err e;
  for (int r = 0; r < 24; r++) {
    const aci_gemm_type t = pairs[r % 6][0], out = pairs[r % 6][1];
    const int bytes = aci_gemm_type_bytes(t);
    const int64_t m = 9 + below(r % 2 == 0 ? 24 : 120), n = 100 + below(200), k = 260 + 2 * below(300);
    char *a = values(t, m * k), *across = values(t, k * n), *down = malloc((size_t)(k * n * bytes));
    char *c = malloc((size_t)(m * n) * 8), *d = malloc((size_t)(m * n) * 8), *bias = values(t, n);
    for (int64_t i = 0; i < k; i++)
      for (int64_t j = 0; j < n; j++) memcpy(down + (j * k + i) * bytes, across + (i * n + j) * bytes, (size_t)bytes);
    const void *pa = a, *pb = across;
    void *pc = c;
    aci_gemm g = {.in_type = t, .out_type = out, .m = m, .n = n, .k = k, .a_rs = k, .a_cs = 1, .b_rs = n, .b_cs = 1,
                  .c_rs = n, .n_batch = 1, .a = &pa, .b = &pb, .c = &pc, .bias = bias, .bias_type = t, .alpha = 1};
    assert_ok(aci_cpu_gemm(NULL, &g, &e), e);
    pb = down;
    pc = d;
    g.b_rs = 1;
    g.b_cs = k;
    assert_ok(aci_cpu_gemm(teams[2], &g, &e), e);
    assert_memory_equal(c, d, (size_t)(m * n * aci_gemm_type_bytes(out)));
    free(a);
    free(across);
    free(down);
    free(bias);
    free(c);
    free(d);
  }
}

static uint16_t bf16_at(const float *p, int64_t i) { return aci_f32_to_bf16(p[i]); }

/* n values of which some lie halfway between two of bf16 and, unless all are to be finite, some are denormal, infinite or not a number. */
static float *rough_values(int64_t n, bool finite) {
  float *p = values(ACI_GEMM_F32, n);
  for (int64_t i = 0; i < n; i++) {
    uint32_t u;
    memcpy(&u, &p[i], 4);
    switch (below(8)) {
      case 0: u = (u & 0xffff0000u) | 0x8000u; break;
      case 1: u = finite ? u : u & 0x807fffffu; break;
      case 2: u = finite ? u : 0x7f800000u | (u & 0x80000000u); break;
      case 3: u = finite ? u : 0x7f800001u | (u & 0x803fffffu); break;
      default: break;
    }
    memcpy(&p[i], &u, 4);
  }
  return p;
}

/* B in f32, rounded as it is packed, or rounded before: the same bits, in every layout of it and by every plan. Products that oneDNN
 * multiplies on AMX are left out: it sums in its own order, and host/ops/matmul/product.c does not ask for rounding there. */
static void rounding_on_the_way_gives_the_same_bits(void **state) {
  (void)state;
  ac_err e;
  static const int64_t sizes[][3] = {{1, 5, 7},       {20, 100, 300}, {70, 33, 129},  {130, 290, 1000},
                                     {300, 777, 385}, {64, 64, 64},   {33, 230, 21000}}; /* the last: k in groups */
  for (int r = 0; r < 37; r++) {
    const int64_t *s = sizes[r < 36 ? r % 6 : 6], m = s[0], n = s[1], k = s[2], batch = r % 4 == 3 ? 3 : 1;
    const aci_gemm_type out = r % 2 ? ACI_GEMM_F32 : ACI_GEMM_BF16;
    const int c_bytes = aci_gemm_type_bytes(out);
    aci_gemm g = {.in_type = ACI_GEMM_BF16, .out_type = out, .m = m, .n = n, .k = k, .a_rs = k, .a_cs = 1, .c_rs = n,
                  .n_batch = batch, .alpha = 1};
    const int64_t len = view(k, n, &g.b_rs, &g.b_cs);
    void *a = values(ACI_GEMM_BF16, m * k), *bias = values(ACI_GEMM_F32, n);
    float *wide = rough_values(len, true);
    uint16_t *narrow = malloc((size_t)len * 2);
    char *c = malloc((size_t)(m * n * c_bytes * batch)), *d = malloc((size_t)(m * n * c_bytes * batch));
    for (int64_t i = 0; i < len; i++) narrow[i] = bf16_at(wide, i);
    const void *pa[] = {a, a, a}, *pw[] = {wide, wide, wide}, *pn[] = {narrow, narrow, narrow};
    void *pc[3], *pd[3];
    for (int i = 0; i < 3; i++) pc[i] = c + i * m * n * c_bytes, pd[i] = d + i * m * n * c_bytes;
    g.a = pa;
    if (r % 3 == 0) g.bias = bias, g.bias_type = ACI_GEMM_F32;
    g.b = pn;
    g.c = pc;
    if (!aci_onednn_wants(&g)) {
      assert_ok(aci_cpu_gemm(NULL, &g, &e), e);
      g.b = pw;
      g.c = pd;
      g.round_b = true;
      assert_ok(aci_cpu_gemm(teams[r < 36 ? r % 4 : 3], &g, &e), e);
      assert_memory_equal(c, d, (size_t)(m * n * c_bytes * batch));
    }
    free(a);
    free(bias);
    free(wide);
    free(narrow);
    free(c);
    free(d);
  }
}

/* Panels of pairs, as CPUs with bf16 instructions read them, on any CPU: of f32 rounded on the way, and of bf16, which is checked value by
 * value. */
static void panels_of_rounded_values(void **state) {
  (void)state;
  const aci_gemm_kernel f32 = *aci_gemm_kernel_for(ACI_GEMM_F32);
  aci_gemm_kernel kinds[2] = {f32, {.pack = ACI_PACK_BF16, .mr = 14, .nr = 32, .pair = 2, .bytes = 2}};
  for (int r = 0; r < 200; r++) {
#if defined(__x86_64__)
    const bool pairs_too = aci_cpu_isa() == ACI_ISA_AVX512;
#else
    const bool pairs_too = true;
#endif
    const aci_gemm_kernel *kn = &kinds[pairs_too ? r % 2 : 0];
    const int64_t w = 1 + below(300), kc = 1 + below(300), width = r % 3 == 0 ? kn->mr : kn->nr;
    const bool half = width == kn->nr;
    int64_t ws, ks;
    const int64_t len = view(w, kc, &ws, &ks), bytes = aci_gemm_packed_bytes(kn, w, width, kc);
    float *wide = rough_values(len, false);
    uint16_t *narrow = malloc((size_t)len * 2);
    for (int64_t i = 0; i < len; i++) narrow[i] = bf16_at(wide, i);
    char *p = calloc(1, (size_t)bytes), *q = calloc(1, (size_t)bytes);
    aci_gemm_pack(kn, ACI_GEMM_BF16, p, (int)width, half, w, kc, narrow, ws, ks);
    aci_gemm_pack_rounded(kn, q, (int)width, half, w, kc, wide, ws, ks);
    assert_memory_equal(p, q, (size_t)bytes);
    const int64_t kp = (kc + kn->pair - 1) / kn->pair * kn->pair;
    for (int64_t i = 0; i < w; i++)
      for (int64_t k = 0; k < kc; k++) {
        const int64_t i0 = i / width * width, here = half && w - i0 <= width / 2 ? width / 2 : width;
        const int64_t at = i0 * kp + (k / kn->pair * here + i - i0) * kn->pair + k % kn->pair;
        const uint16_t want = narrow[i * ws + k * ks];
        const float f = aci_bf16_to_f32(want);
        assert_memory_equal(q + at * kn->bytes, kn->pair == 2 ? (const void *)&want : (const void *)&f, (size_t)kn->bytes);
      }
    free(wide);
    free(narrow);
    free(p);
    free(q);
  }
}

static void empty_shapes(void **state) {
  (void)state;
  for (int r = 0; r < 6 * N_PAIRS; r++) {
    const aci_gemm_type *t = pairs[r % N_PAIRS];
    run_case(t[0], t[1], 5, 9, 0, 2); /* beta C + bias */
    run_case(t[0], t[1], 0, 9, 4, 1);
    run_case(t[0], t[1], 5, 0, 4, 1);
  }
}

static void one_times_one(void **state) {
  (void)state;
  for (int i = 0; i < N_PAIRS; i++) run_case(pairs[i][0], pairs[i][1], 1, 1, 1, 1);
}

static void infinities_and_nan_pass_through(void **state) {
  (void)state;
  enum { M = 20, N = 40, K = 30 };
  static float a[M * K], b[K * N], c[M * N];
  for (int i = 0; i < M * K; i++) a[i] = 1;
  for (int i = 0; i < K * N; i++) b[i] = 1;
  a[3 * K + 5] = INFINITY;
  b[7 * N + 11] = NAN;
  const void *pa = a, *pb = b;
  void *pc = c;
  aci_gemm g = {.in_type = ACI_GEMM_F32,
                .out_type = ACI_GEMM_F32,
                .m = M,
                .n = N,
                .k = K,
                .a_rs = K,
                .a_cs = 1,
                .b_rs = N,
                .b_cs = 1,
                .c_rs = N,
                .n_batch = 1,
                .a = &pa,
                .b = &pb,
                .c = &pc,
                .alpha = 1};
  ac_err e;
  assert_ok(aci_cpu_gemm(NULL, &g, &e), e);
  for (int i = 0; i < M; i++)
    for (int j = 0; j < N; j++) {
      if (j == 11) assert_true(isnan(c[i * N + j]));
      else if (i == 3) assert_true(isinf(c[i * N + j]));
      else assert_true(c[i * N + j] == K);
    }
}

static void unknown_pairs_are_refused(void **state) {
  (void)state;
  float x = 1, y = 1;
  double z = 0;
  const void *pa = &x, *pb = &y;
  void *pc = &z;
  aci_gemm g = {.in_type = ACI_GEMM_F32,
                .out_type = ACI_GEMM_F64,
                .m = 1,
                .n = 1,
                .k = 1,
                .a_rs = 1,
                .a_cs = 1,
                .b_rs = 1,
                .b_cs = 1,
                .c_rs = 1,
                .n_batch = 1,
                .a = &pa,
                .b = &pb,
                .c = &pc,
                .alpha = 1};
  ac_err e;
  assert_fails(aci_cpu_gemm(NULL, &g, &e), UNSUPPORTED, "matrix product", e);
  g.out_type = ACI_GEMM_F32;
  g.round_b = true;
  assert_fails(aci_cpu_gemm(NULL, &g, &e), UNSUPPORTED, "matrix to round", e);
  assert_true(z == 0);
}

/* The oneDNN path on any CPU, with tiles that do not divide the shape; skipped where the module is absent. */
static void through_onednn(void **state) {
  (void)state;
  uint16_t x[64 * 64] = {0}, z[64 * 64];
  const void *pa = x, *pb = x;
  void *pc = z;
  aci_gemm g = {.in_type = ACI_GEMM_BF16,
                .out_type = ACI_GEMM_BF16,
                .m = 64,
                .n = 64,
                .k = 64,
                .a_rs = 64,
                .a_cs = 1,
                .b_rs = 64,
                .b_cs = 1,
                .c_rs = 64,
                .n_batch = 1,
                .a = &pa,
                .b = &pb,
                .c = &pc,
                .alpha = 1};
  aci_onednn_force(true);
  if (!aci_onednn_wants(&g)) {
    aci_onednn_force(false);
    skip();
  }
  assert_string_equal(aci_cpu_gemm_path(&g), "onednn");
  for (int r = 0; r < 24; r++)
    run_case(ACI_GEMM_BF16, pairs[2 + r % 2][1], 1 + below(40), 1 + below(70), 1 + below(50), 1 + below(3));
  for (int r = 0; r < 24; r++)
    run_case(ACI_GEMM_BF16, pairs[2 + r % 2][1], 64 + below(150), 64 + below(150), 64 + below(300), 1);
  run_case(ACI_GEMM_BF16, ACI_GEMM_BF16, 200, 1100, 300, 1);
  run_case(ACI_GEMM_BF16, ACI_GEMM_F32, 520, 530, 100, 1);
  aci_onednn_force(false);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_times_one),
      cmocka_unit_test(small_shapes),
      cmocka_unit_test(skinny_shapes),
      cmocka_unit_test(blocked_shapes),
      cmocka_unit_test(k_in_groups),
      cmocka_unit_test(long_k),
      cmocka_unit_test(few_rows),
      cmocka_unit_test(swapped_sides_give_the_same_bits),
      cmocka_unit_test(rounding_on_the_way_gives_the_same_bits),
      cmocka_unit_test(panels_of_rounded_values),
      cmocka_unit_test(empty_shapes),
      cmocka_unit_test(infinities_and_nan_pass_through),
      cmocka_unit_test(unknown_pairs_are_refused),
      cmocka_unit_test(through_onednn),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
