/* Attention and its gradients against the plain formulas in double, over types, masks, head sharing, dropout,
 * strides and awkward lengths; every case again with other teams, where each bit must be the same. */
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "base/vmath.h"
#include "device/cpu/gemm_impl.h"
#include "device/cpu/kernels/flash.h"

static uint64_t rng = 0x2545f4914f6cdd1du;

static int64_t below(int64_t n) { return (int64_t)(ac_test_random(&rng) % (uint64_t)n); }

static void put(aci_gemm_type t, void *p, int64_t i, double v) {
  switch (t) {
    case ACI_GEMM_F64: ((double *)p)[i] = v; break;
    case ACI_GEMM_F32: ((float *)p)[i] = (float)v; break;
    case ACI_GEMM_BF16: ((uint16_t *)p)[i] = aci_f32_to_bf16((float)v); break;
    default: ((uint16_t *)p)[i] = aci_f32_to_f16((float)v); break;
  }
}

static void *values(aci_gemm_type t, int64_t n) {
  void *p = malloc((size_t)(n * aci_gemm_type_bytes(t)) + 1);
  assert_non_null(p);
  for (int64_t i = 0; i < n; i++) put(t, p, i, 2 * ac_test_uniform(&rng) - 1);
  return p;
}

/* (b, h, t, d) laid out as (b, t, h, d) or (b, h, t, d), rows padded now and then. */
static int64_t layout(int64_t b, int64_t h, int64_t t, int64_t d, int64_t s[3]) {
  int64_t row = d + (below(3) == 0 ? below(5) : 0);
  if (below(2)) s[2] = row, s[1] = t * row;
  else s[1] = row, s[2] = h * row;
  s[0] = h * t * row;
  return b * s[0];
}

typedef struct problem {
  aci_flash f;
  aci_flash_grads g;
  int64_t out_len, dq_len, dk_len, dv_len, n_lse;
  double *want_out, *want_lse, *want_dq, *want_dk, *want_dv; /* contiguous (b, h, t, d) */
  double *slack_dq, *slack_dk; /* how much they change when out is off by a factor of 1 +- 1 */
} problem;

static double at(const problem *p, const void *x, const int64_t s[3], int64_t b, int64_t h, int64_t t,
                 int64_t d) {
  return aci_gemm_load(p->f.type, x, b * s[0] + h * s[1] + t * s[2] + d);
}

/* The factor of dropout, by the rule in flash.h. */
static double keep(const aci_flash *f, int64_t b, int64_t h, int64_t i, int64_t j) {
  if (f->drop_p == 0) return 1;
  const int64_t *first = f->drop_0, *n = f->drop_n; /* zero and the own extents, or a range of larger ones */
  uint64_t e = (uint64_t)((((first[0] + b) * n[1] + first[1] + h) * n[2] + first[2] + i) * n[3] + first[3] + j);
  aci_u32x4 w = aci_philox(f->drop_key, e / 4, f->drop_counter);
  return w.v[e % 4] >= f->drop_below ? 1 / (1 - f->drop_p) : 0;
}

/* Forward and backward by the definition, one row of weights at a time. */
static void reference(problem *p) {
  const aci_flash *f = &p->f;
  const aci_flash_grads *g = &p->g;
  int64_t D = f->d;
  double *w = calloc((size_t)(3 * f->tk + 1), sizeof *w), *dw = w + f->tk, *kf = dw + f->tk;
  p->want_out = calloc((size_t)(f->b * f->hq * f->tq * D + 1), 8);
  p->want_dq = calloc((size_t)(f->b * f->hq * f->tq * D + 1), 8);
  p->want_lse = calloc((size_t)(f->b * f->hq * f->tq + 1), 8);
  p->want_dk = calloc((size_t)(f->b * f->hkv * f->tk * D + 1), 8);
  p->want_dv = calloc((size_t)(f->b * f->hkv * f->tk * D + 1), 8);
  p->slack_dq = calloc((size_t)(f->b * f->hq * f->tq * D + 1), 8);
  p->slack_dk = calloc((size_t)(f->b * f->hkv * f->tk * D + 1), 8);
  for (int64_t b = 0; b < f->b; b++)
    for (int64_t h = 0; h < f->hq; h++)
      for (int64_t i = 0; i < f->tq; i++) {
        int64_t hk = h / (f->hq / f->hkv), row = (b * f->hq + h) * f->tq + i;
        double top = -INFINITY, sum = 0;
        for (int64_t j = 0; j < f->tk; j++) {
          double s = 0;
          for (int64_t d = 0; d < D; d++)
            s += at(p, f->q, f->q_s, b, h, i, d) * at(p, f->k, f->k_s, b, hk, j, d);
          s *= f->scale;
          if (f->alibi != NULL) s -= f->alibi[h] * fabs((double)(i + (f->causal ? 0 : f->tk - f->tq) - j));
          int64_t m = b * f->mask_s[0] + h * f->mask_s[1] + i * f->mask_s[2] + j * f->mask_s[3];
          if (f->mask_kind == ACI_FLASH_ADD_MASK) s += aci_gemm_load(f->mask_type, f->mask, m);
          if (f->mask_kind == ACI_FLASH_BOOL_MASK && !((const uint8_t *)f->mask)[m]) s = -INFINITY;
          if (f->causal && j > i) s = -INFINITY;
          w[j] = s;
          if (s > top) top = s;
        }
        for (int64_t j = 0; j < f->tk; j++) sum += w[j] = top == -INFINITY ? 0 : exp(w[j] - top);
        p->want_lse[row] = sum == 0 ? -INFINITY : top + log(sum);
        double delta = 0;
        for (int64_t j = 0; j < f->tk; j++) {
          w[j] = sum == 0 ? 0 : w[j] / sum;
          kf[j] = keep(f, b, h, i, j);
          dw[j] = 0;
          for (int64_t d = 0; d < D; d++) {
            double dout = at(p, g->dout, g->dout_s, b, h, i, d), v = at(p, f->v, f->v_s, b, hk, j, d);
            p->want_out[row * D + d] += w[j] * kf[j] * v;
            p->want_dv[((b * f->hkv + hk) * f->tk + j) * D + d] += w[j] * kf[j] * dout;
            dw[j] += dout * v * kf[j];
          }
          delta += w[j] * dw[j];
        }
        double slack = 0; /* backward takes delta from the rounded out */
        for (int64_t d = 0; d < D; d++)
          slack += fabs(at(p, g->dout, g->dout_s, b, h, i, d) * p->want_out[row * D + d]);
        for (int64_t j = 0; j < f->tk; j++) {
          double ds = w[j] * (dw[j] - delta) * f->scale, off = w[j] * slack * fabs(f->scale);
          for (int64_t d = 0; d < D; d++) {
            double k = at(p, f->k, f->k_s, b, hk, j, d), q = at(p, f->q, f->q_s, b, h, i, d);
            int64_t to = ((b * f->hkv + hk) * f->tk + j) * D + d;
            p->want_dq[row * D + d] += ds * k;
            p->want_dk[to] += ds * q;
            p->slack_dq[row * D + d] += off * fabs(k);
            p->slack_dk[to] += off * fabs(q);
          }
        }
      }
  free(w);
}

static void describe(const problem *p, const char *what) {
  const aci_flash *f = &p->f;
  print_error("%s: type %d, b %lld, heads %lld/%lld, tq %lld, tk %lld, d %lld, causal %d, mask %d, drop %g, "
              "ALiBi %d\n",
              what, (int)f->type, (long long)f->b, (long long)f->hq, (long long)f->hkv, (long long)f->tq,
              (long long)f->tk, (long long)f->d, f->causal, (int)f->mask_kind, f->drop_p, f->alibi != NULL);
}

/* Error relative to the largest value of the tensor: sums cancel. */
static void compare(const problem *p, const char *name, const void *got, const int64_t s[3], int64_t heads,
                    int64_t length, const double *want, const double *slack) {
  const aci_flash *f = &p->f;
  static const double eps[] = {
      [ACI_GEMM_F64] = 0x1p-53, [ACI_GEMM_F32] = 0x1p-24, [ACI_GEMM_BF16] = 0x1p-8, [ACI_GEMM_F16] = 0x1p-11};
  static const double bar[] = {
      [ACI_GEMM_F64] = 1e-13, [ACI_GEMM_F32] = 3e-6, [ACI_GEMM_BF16] = 3e-2, [ACI_GEMM_F16] = 4e-3};
  double size = 0.3; /* the inputs are of order one */
  for (int64_t i = 0; i < f->b * heads * length * f->d; i++) size = fmax(size, fabs(want[i]));
  for (int64_t b = 0; b < f->b; b++)
    for (int64_t h = 0; h < heads; h++)
      for (int64_t t = 0; t < length; t++)
        for (int64_t d = 0; d < f->d; d++) {
          int64_t i = ((b * heads + h) * length + t) * f->d + d;
          double x = at(p, got, s, b, h, t, d), y = want[i];
          if (!(fabs(x - y) <= bar[f->type] * size + (slack == NULL ? 0 : eps[f->type] * slack[i]))) {
            describe(p, name);
            print_error("  [%lld,%lld,%lld,%lld] = %.9g, expected %.9g, largest %.3g\n", (long long)b,
                        (long long)h, (long long)t, (long long)d, x, y, size);
            fail();
          }
        }
}

static ac_team *teams[3]; /* of 1, 2 and 5 */

static int setup(void **state) {
  (void)state;
  static const int sizes[3] = {1, 2, 5};
  ac_err e;
  for (int i = 0; i < 3; i++) assert_ok(ac_team_new(sizes[i], &teams[i], &e), e);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) ac_team_free(teams[i]);
  return 0;
}

enum { CAUSAL = 1, BOOL = 2, ADD = 4, DROP = 8, BLOCKED_ROW = 16, ALIBI = 32 };

static void problem_new(problem *p, aci_gemm_type type, int64_t b, int64_t hq, int64_t hkv, int64_t tq,
                        int64_t tk, int64_t d, int how) {
  memset(p, 0, sizeof *p);
  aci_flash *f = &p->f;
  aci_flash_grads *g = &p->g;
  *f = (aci_flash){.type = type,
                   .b = b,
                   .hq = hq,
                   .hkv = hkv,
                   .tq = tq,
                   .tk = tk,
                   .d = d,
                   .scale = below(4) ? 1 / sqrt((double)d) : -1.5,
                   .causal = how & CAUSAL};
  f->q = values(type, layout(b, hq, tq, d, f->q_s));
  f->k = values(type, layout(b, hkv, tk, d, f->k_s));
  f->v = values(type, layout(b, hkv, tk, d, f->v_s));
  p->out_len = layout(b, hq, tq, d, f->out_s);
  f->out = values(type, p->out_len);
  p->n_lse = b * hq * tq;
  f->lse = values(type == ACI_GEMM_F64 ? ACI_GEMM_F64 : ACI_GEMM_F32, p->n_lse);
  if (how & (BOOL | ADD)) {
    f->mask_kind = how & BOOL ? ACI_FLASH_BOOL_MASK : ACI_FLASH_ADD_MASK;
    f->mask_type = below(2) ? type : ACI_GEMM_F32;
    int64_t len = 1, *s = f->mask_s;
    s[3] = 1, len = tk;
    if (below(3)) s[2] = len, len *= tq;
    if (below(2)) s[1] = len, len *= hq;
    if (below(2)) s[0] = len, len *= b;
    if (how & BOOL) {
      uint8_t *m = malloc((size_t)len + 1);
      assert_non_null(m);
      for (int64_t i = 0; i < len; i++) m[i] = below(4) ? (uint8_t)(1 + below(3)) : 0;
      if (how & BLOCKED_ROW) memset(m, 0, (size_t)tk);
      f->mask = m;
    } else {
      void *m = values(f->mask_type, len);
      if (how & BLOCKED_ROW)
        for (int64_t i = 0; i < tk; i++) put(f->mask_type, m, i, -INFINITY);
      f->mask = m;
    }
  }
  if (how & DROP) {
    f->drop_p = 0.3;
    f->drop_key = ac_test_random(&rng);
    f->drop_counter = ac_test_random(&rng);
    f->drop_below = (uint32_t)(0.3 * 4294967296.0);
    const int64_t own[4] = {f->b, f->hq, f->tq, f->tk};
    for (int i = 0; i < 4; i++) {
      f->drop_0[i] = below(2) ? below(4) : 0;
      f->drop_n[i] = own[i] + f->drop_0[i] + below(3);
    }
  }
  if (how & ALIBI) {
    double *slopes = malloc((size_t)hq * sizeof *slopes);
    assert_non_null(slopes);
    for (int64_t i = 0; i < hq; i++) slopes[i] = 0.05 * ac_test_uniform(&rng);
    f->alibi = slopes;
  }
  g->dout = values(type, layout(b, hq, tq, d, g->dout_s));
  p->dq_len = layout(b, hq, tq, d, g->dq_s);
  p->dk_len = layout(b, hkv, tk, d, g->dk_s);
  p->dv_len = layout(b, hkv, tk, d, g->dv_s);
  g->dq = values(type, p->dq_len);
  g->dk = values(type, p->dk_len);
  g->dv = values(type, p->dv_len);
}

static void problem_free(problem *p) {
  const void *all[] = {p->f.q,     p->f.k,     p->f.v,     p->f.out,    p->f.lse,    p->f.mask,
                       p->g.dout,  p->g.dq,    p->g.dk,    p->g.dv,     p->want_out, p->want_lse,
                       p->want_dq, p->want_dk, p->want_dv, p->slack_dq, p->slack_dk, p->f.alibi};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free((void *)(uintptr_t)all[i]);
}

static void run_case(aci_gemm_type type, int64_t b, int64_t hq, int64_t hkv, int64_t tq, int64_t tk,
                     int64_t d, int how) {
  problem p;
  ac_err e;
  problem_new(&p, type, b, hq, hkv, tq, tk, d, how);
  aci_flash *f = &p.f;
  assert_ok(aci_flash_forward(NULL, f, &e), e);
  assert_ok(aci_flash_backward(NULL, f, &p.g, &e), e);
  reference(&p);
  compare(&p, "out", f->out, f->out_s, hq, tq, p.want_out, NULL);
  compare(&p, "dq", p.g.dq, p.g.dq_s, hq, tq, p.want_dq, p.slack_dq);
  compare(&p, "dk", p.g.dk, p.g.dk_s, hkv, tk, p.want_dk, p.slack_dk);
  compare(&p, "dv", p.g.dv, p.g.dv_s, hkv, tk, p.want_dv, NULL);
  aci_gemm_type acc = type == ACI_GEMM_F64 ? ACI_GEMM_F64 : ACI_GEMM_F32;
  for (int64_t i = 0; i < p.n_lse; i++) {
    double got = aci_gemm_load(acc, f->lse, i), want = p.want_lse[i];
    if (!(got == want || fabs(got - want) <= (type == ACI_GEMM_F64 ? 1e-12 : 1e-5) * (1 + fabs(want)))) {
      describe(&p, "lse");
      print_error("  row %lld: %.9g, expected %.9g\n", (long long)i, got, want);
      fail();
    }
  }

  void *outs[] = {f->out, f->lse, p.g.dq, p.g.dk, p.g.dv};
  int64_t n = aci_gemm_type_bytes(type);
  size_t bytes[] = {(size_t)(p.out_len * n), (size_t)(p.n_lse * aci_gemm_type_bytes(acc)),
                    (size_t)(p.dq_len * n), (size_t)(p.dk_len * n), (size_t)(p.dv_len * n)};
  char *first[5];
  for (int i = 0; i < 5; i++) {
    first[i] = malloc(bytes[i] + 1);
    assert_non_null(first[i]);
    memcpy(first[i], outs[i], bytes[i]);
  }
  for (int t = 0; t < 3; t++) {
    assert_ok(aci_flash_forward(teams[t], f, &e), e);
    assert_ok(aci_flash_backward(teams[t], f, &p.g, &e), e);
    for (int i = 0; i < 5; i++)
      if (memcmp(first[i], outs[i], bytes[i]) != 0) {
        describe(&p, "bits differ between teams");
        fail();
      }
  }
  for (int i = 0; i < 5; i++) free(first[i]);
  problem_free(&p);
}

static const aci_gemm_type types[] = {ACI_GEMM_F32, ACI_GEMM_BF16, ACI_GEMM_F16, ACI_GEMM_F64};

static void small_shapes(void **state) {
  (void)state;
  for (int r = 0; r < 160; r += ac_test_every(3)) {
    int64_t hkv = 1 + below(2), share = 1 + below(3);
    run_case(types[r % 4], 1 + below(2), hkv * share, hkv, 1 + below(50), 1 + below(50), 1 + below(40),
             (int)below(16) & ~(below(2) ? BOOL : ADD));
  }
}

/* Several chunks of keys and of queries, with all tails. */
static void long_sequences(void **state) {
  (void)state;
  for (int r = 0; r < 12; r += ac_test_every(3))
    run_case(types[r % 4], 1, 1, 1, 250 + below(80), 250 + below(380), 17 + below(20), r % 3 ? CAUSAL : 0);
  run_case(ACI_GEMM_F32, 1, 2, 1, 300, 600, 16, CAUSAL | DROP);
  run_case(ACI_GEMM_BF16, 1, 2, 1, 600, 300, 16, ADD | DROP);
}

/* One head, many keys: the keys of a head are shared out, and the ranges' dq added up. */
static void key_ranges(void **state) {
  (void)state;
  run_case(ACI_GEMM_F32, 1, 2, 2, 70, 1100, 8, 0);
  run_case(ACI_GEMM_BF16, 1, 2, 1, 1100, 1100, 8, CAUSAL);
  run_case(ACI_GEMM_F64, 1, 1, 1, 40, 1300, 6, BOOL);
}

/* Enough heads that one task has all keys of its head, also more than a chunk of them. */
static void many_heads(void **state) {
  (void)state;
  run_case(ACI_GEMM_F32, 4, 4, 4, 64, 64, 32, CAUSAL);
  run_case(ACI_GEMM_F32, 4, 8, 4, 33, 540, 8, 0);
}

static void linear_biases(void **state) {
  (void)state;
  for (int r = 0; r < 60; r += ac_test_every(3))
    run_case(types[r % 4], 1 + below(2), 1 + below(3), 1, 1 + below(50), 1 + below(50), 1 + below(40),
             ALIBI | ((int)below(16) & ~(below(2) ? BOOL : ADD)));
  for (int i = 0; i < 4; i++) run_case(types[i], 1, 2, 1, 1, 77, 64, ALIBI);
  run_case(ACI_GEMM_F32, 1, 2, 2, 300, 300, 16, ALIBI | CAUSAL);
  run_case(ACI_GEMM_F64, 1, 2, 1, 250, 600, 16, ALIBI);
  run_case(ACI_GEMM_BF16, 1, 1, 1, 70, 1100, 8, ALIBI);
}

static void decode_shapes(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) run_case(types[i], 3, 4, 2, 1, 77, 64, 0);
}

static void masked_rows_give_zeros(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) {
    run_case(types[i], 1, 2, 2, 20, 40, 16, BOOL | BLOCKED_ROW);
    run_case(types[i], 1, 2, 1, 20, 300, 16, ADD | BLOCKED_ROW);
    run_case(types[i], 1, 1, 1, 9, 5, 3, BOOL | BLOCKED_ROW | CAUSAL | DROP);
  }
}

static void nothing_to_attend_to(void **state) {
  (void)state;
  problem p;
  ac_err e;
  problem_new(&p, ACI_GEMM_F32, 2, 2, 2, 5, 0, 4, 0);
  assert_ok(aci_flash_forward(NULL, &p.f, &e), e);
  assert_ok(aci_flash_backward(NULL, &p.f, &p.g, &e), e);
  reference(&p);
  compare(&p, "out", p.f.out, p.f.out_s, 2, 5, p.want_out, NULL);
  compare(&p, "dq", p.g.dq, p.g.dq_s, 2, 5, p.want_dq, p.slack_dq);
  problem_free(&p);
  problem_new(&p, ACI_GEMM_F32, 2, 2, 2, 0, 5, 4, 0);
  assert_ok(aci_flash_forward(NULL, &p.f, &e), e);
  assert_ok(aci_flash_backward(NULL, &p.f, &p.g, &e), e);
  reference(&p);
  compare(&p, "dk", p.g.dk, p.g.dk_s, 2, 5, p.want_dk, p.slack_dk);
  compare(&p, "dv", p.g.dv, p.g.dv_s, 2, 5, p.want_dv, NULL);
  problem_free(&p);
}

/* Dropout keeps about 1 - p of the weights, and the same ones for every layout of work. */
static void dropout_rate(void **state) {
  (void)state;
  enum { T = 256 };
  problem p;
  ac_err e;
  problem_new(&p, ACI_GEMM_F32, 1, 1, 1, T, T, 1, DROP);
  for (int64_t i = 0; i < T; i++) {
    ((float *)(uintptr_t)p.f.q)[i * p.f.q_s[2]] = 0; /* equal weights */
    ((float *)(uintptr_t)p.f.v)[i * p.f.v_s[2]] = 1; /* out = kept / (1 - p) / T */
  }
  assert_ok(aci_flash_forward(NULL, &p.f, &e), e);
  double mean = 0;
  for (int64_t i = 0; i < T; i++) mean += at(&p, p.f.out, p.f.out_s, 0, 0, i, 0) / T;
  assert_true(fabs(mean - 1) < 0.02); /* 7 standard deviations */
  problem_free(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(small_shapes),         cmocka_unit_test(long_sequences),
      cmocka_unit_test(key_ranges),           cmocka_unit_test(many_heads),
      cmocka_unit_test(decode_shapes),        cmocka_unit_test(masked_rows_give_zeros),
      cmocka_unit_test(nothing_to_attend_to), cmocka_unit_test(dropout_rate),
      cmocka_unit_test(linear_biases),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
