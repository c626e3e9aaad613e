/* Attention of one query, as decoding asks for: keys and values are read once, as they lie, by up
 * to four of the query heads that share them. Called by flash.c, whose packed tiles pay from
 * several queries on.
 *
 * For each chunk of keys: scores, their largest, weights, their sum, weighted values. Earlier sums
 * are rescaled when the largest grows. Sums of products run over 16 interleaved lanes, on every
 * ISA, so that bits do not depend on it nor on the number of threads. The lanes of eight keys are
 * added up together, by a tree of permutations that ends with the eight scores adjacent. */
#include <math.h>
#include <string.h>

#include "base/vmath.h"
#include "device/cpu/isa.h"
#include "device/cpu/kernels/flash_impl.h"

enum {
  V = 8,
  LANES = 2 * V,
  CHUNK = 256,
  MAX_D = 256,
  TOGETHER = 4 /* heads */,
  HELD = 8 /* vectors of sums in registers */
};

typedef float vec __attribute__((vector_size(4 * V), aligned(4), may_alias));
#if defined(__clang__) || __GNUC__ >= 12
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICK(a, b, ...) __builtin_shuffle(a, b, (__typeof__((a) < (b))){__VA_ARGS__})
#endif

typedef struct head {
  float q[MAX_D] /* zeros after d up to LANES */, acc[MAX_D], most, sum;
} head;

static inline AC_INLINE float load(const aci_gemm_type type, const void *p, int64_t i) {
  return type == ACI_GEMM_F32    ? ((const float *)p)[i]
         : type == ACI_GEMM_BF16 ? aci_bf16_to_f32(((const uint16_t *)p)[i])
                                 : aci_f16_to_f32(((const uint16_t *)p)[i]);
}

/* Through a pointer: a vector that is returned has an ABI, which depends on the ISA. */
static inline AC_INLINE void load_vec(const aci_gemm_type type, const void *p, int64_t i, vec *to) {
  if (type == ACI_GEMM_F32) {
    *to = *(const vec *)((const float *)p + i);
  } else if (type == ACI_GEMM_BF16) {
    uint32_t x[V];
    for (int l = 0; l < V; l++) x[l] = (uint32_t)((const uint16_t *)p)[i + l] << 16;
    *to = *(const vec *)x;
  } else {
    float x[V];
    for (int l = 0; l < V; l++) x[l] = load(type, p, i + l);
    *to = *(const vec *)x;
  }
}

/* to[i] = the sum of the lanes of x[i]: lane l takes lane l + 4, then l + 2, then l + 1. */
static inline AC_INLINE void tree(const vec *x, vec *to) {
  vec y[4], z[2];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++)
    y[i] = PICK(x[2 * i], x[2 * i + 1], 0, 1, 2, 3, 8, 9, 10, 11) +
           PICK(x[2 * i], x[2 * i + 1], 4, 5, 6, 7, 12, 13, 14, 15);
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++)
    z[i] = PICK(y[2 * i], y[2 * i + 1], 0, 1, 4, 5, 8, 9, 12, 13) +
           PICK(y[2 * i], y[2 * i + 1], 2, 3, 6, 7, 10, 11, 14, 15);
  *to = PICK(z[0], z[1], 0, 2, 4, 6, 8, 10, 12, 14) + PICK(z[0], z[1], 1, 3, 5, 7, 9, 11, 13, 15);
}

/* score[h][j] = q_h k_j scale for n keys from k on, stride bytes apart. Written to a multiple of 8
 * keys. */
static inline AC_INLINE void scores(const aci_flash *f, const aci_gemm_type type, const int heads,
                                    const head *s, const char *k, int64_t stride, int64_t n,
                                    float (*score)[CHUNK]) {
  const int64_t d = f->d, whole = d / LANES * LANES;
  for (int64_t j0 = 0; j0 < n; j0 += V) {
    vec part[TOGETHER][V];
    for (int64_t j = 0; j < V; j++) {
      const char *row = k + (j0 + j < n ? j0 + j : n - 1) * stride;
      vec low[TOGETHER], high[TOGETHER], a, b;
#pragma GCC unroll 8
      for (int h = 0; h < heads; h++) low[h] = high[h] = (vec){0};
      for (int64_t i = 0; i < whole; i += LANES) {
        load_vec(type, row, i, &a);
        load_vec(type, row, i + V, &b);
#pragma GCC unroll 8
        for (int h = 0; h < heads; h++) {
          low[h] += *(const vec *)(s[h].q + i) * a;
          high[h] += *(const vec *)(s[h].q + i + V) * b;
        }
      }
      if (whole < d) {
        float rest[LANES] = {0};
        for (int64_t i = whole; i < d; i++) rest[i - whole] = load(type, row, i);
#pragma GCC unroll 8
        for (int h = 0; h < heads; h++) {
          low[h] += *(const vec *)(s[h].q + whole) * *(const vec *)rest;
          high[h] += *(const vec *)(s[h].q + whole + V) * *(const vec *)(rest + V);
        }
      }
#pragma GCC unroll 8
      for (int h = 0; h < heads; h++) part[h][j] = low[h] + high[h];
    }
#pragma GCC unroll 8
    for (int h = 0; h < heads; h++) {
      vec sum;
      tree(part[h], &sum);
      *(vec *)(score[h] + j0) = sum * (float)f->scale;
    }
  }
}

/* acc_h[i] += sum over keys j of w[h][j] v_j[i] for n_vecs vectors of elements from i on. Weights
 * of 0 do not look at their value. */
static inline AC_INLINE void add_some(const aci_gemm_type type, const int heads, const int n_vecs,
                                      head *s, const char *v, int64_t stride, int64_t n,
                                      const float (*w)[CHUNK], int64_t i) {
  vec acc[TOGETHER][HELD], x[HELD];
#pragma GCC unroll 8
  for (int h = 0; h < heads; h++)
#pragma GCC unroll 8
    for (int c = 0; c < n_vecs; c++) acc[h][c] = *(const vec *)(s[h].acc + i + c * V);
  for (int64_t j = 0; j < n; j++) {
#pragma GCC unroll 8
    for (int c = 0; c < n_vecs; c++) load_vec(type, v + j * stride, i + c * V, &x[c]);
#pragma GCC unroll 8
    for (int h = 0; h < heads; h++)
      if (aci_bits32(w[h][j]) != 0)
#pragma GCC unroll 8
        for (int c = 0; c < n_vecs; c++) acc[h][c] += w[h][j] * x[c];
  }
#pragma GCC unroll 8
  for (int h = 0; h < heads; h++)
#pragma GCC unroll 8
    for (int c = 0; c < n_vecs; c++) *(vec *)(s[h].acc + i + c * V) = acc[h][c];
}

static inline AC_INLINE void add_values(const aci_flash *f, const aci_gemm_type type,
                                        const int heads, head *s, const char *v, int64_t stride,
                                        int64_t n, const float (*w)[CHUNK]) {
  const int step = HELD / heads;
  int64_t i = 0;
  for (; i + step * V <= f->d; i += step * V) add_some(type, heads, step, s, v, stride, n, w, i);
  for (; i + V <= f->d; i += V) add_some(type, heads, 1, s, v, stride, n, w, i);
  for (; i < f->d; i++)
#pragma GCC unroll 8
    for (int h = 0; h < heads; h++)
      for (int64_t j = 0; j < n; j++)
        if (aci_bits32(w[h][j]) != 0) s[h].acc[i] += w[h][j] * load(type, v + j * stride, i);
}

static float mask_at(const aci_flash *f, int64_t b, int64_t h, int64_t j) {
  const int64_t at = b * f->mask_s[0] + h * f->mask_s[1] + j * f->mask_s[3];
  if (f->mask_kind == ACI_FLASH_BOOL_MASK)
    return ((const unsigned char *)f->mask)[at] ? 0 : -INFINITY;
  if (f->mask_type == ACI_GEMM_F64) return (float)((const double *)f->mask)[at];
  return load(f->mask_type, f->mask, at);
}

/* Turns scores of one head into weights and rescales the earlier sums. False if every key so far is
 * masked. */
static inline AC_INLINE bool weigh(const aci_flash *f, head *s, int64_t n, float *score) {
  const int64_t end = (n + LANES - 1) / LANES * LANES;
  float part[LANES] = {0}, most = s->most;
  bool nan = false;
  for (int64_t j = n; j < end; j++) score[j] = -INFINITY;
  for (int64_t j = 0; j < n; j++) {
    most = score[j] > most ? score[j] : most;
    nan |= score[j] != score[j];
  }
  if (most == -INFINITY && !nan) return false; /* all masked */
  if (most == -INFINITY) most = 0;
  for (int64_t j = 0; j < end; j++) score[j] = aci_expf(score[j] - most);
  for (int64_t j = 0; j < end; j += LANES)
    for (int l = 0; l < LANES; l++) part[l] += score[j + l];
  for (int w = LANES / 2; w > 0; w /= 2)
    for (int l = 0; l < w; l++) part[l] += part[l + w];
  if (most != s->most) {
    const float before = s->most == -INFINITY ? 0 : aci_expf(s->most - most);
    s->sum *= before;
    for (int64_t i = 0; i < f->d; i++) s->acc[i] *= before;
    s->most = most;
  }
  s->sum += part[0];
  return true;
}

static inline AC_INLINE void finish(const aci_flash *f, const aci_gemm_type type, const head *s,
                                    int64_t b, int64_t h) {
  void *out = (void *)(uintptr_t)aci_flash_at(type, f->out, f->out_s, b, h, 0);
  const float inverse = s->sum == 0 ? 0 : 1 / s->sum;
  for (int64_t i = 0; i < f->d; i++) {
    const float y = s->acc[i] * inverse;
    if (type == ACI_GEMM_F32) ((float *)out)[i] = y;
    else ((uint16_t *)out)[i] = type == ACI_GEMM_BF16 ? aci_f32_to_bf16(y) : aci_f32_to_f16(y);
  }
  if (f->lse != NULL)
    ((float *)f->lse)[b * f->hq + h] = s->sum == 0 ? -INFINITY : s->most + logf(s->sum);
}

/* `heads` query heads from h on, which read key head hk. */
static inline AC_INLINE void group(const aci_flash *f, const aci_gemm_type type, const int heads,
                                   int64_t b, int64_t h, int64_t hk) {
  _Alignas(64) float score[TOGETHER][CHUNK];
  head s[TOGETHER];
  const int64_t n_keys = f->causal && f->tk > 1 ? 1 : f->tk, size = aci_gemm_type_bytes(type);
  for (int g = 0; g < heads; g++) {
    const void *q = aci_flash_at(type, f->q, f->q_s, b, h + g, 0);
    for (int64_t i = 0; i < f->d; i++) s[g].q[i] = load(type, q, i);
    memset(s[g].q + f->d, 0, (size_t)(aci_ceil_to(f->d, LANES) - f->d) * sizeof(float));
    memset(s[g].acc, 0, (size_t)f->d * sizeof(float));
    s[g].most = -INFINITY;
    s[g].sum = 0;
  }
  for (int64_t c0 = 0; c0 < n_keys; c0 += CHUNK) {
    const int64_t n = n_keys - c0 < CHUNK ? n_keys - c0 : CHUNK;
    bool any = false;
    scores(f, type, heads, s, aci_flash_at(type, f->k, f->k_s, b, hk, c0), f->k_s[2] * size, n,
           score);
    for (int g = 0; g < heads; g++) {
      for (int64_t j = 0; f->mask_kind != ACI_FLASH_NO_MASK && j < n; j++)
        score[g][j] += mask_at(f, b, h + g, c0 + j);
      if (weigh(f, &s[g], n, score[g])) any = true;
      else memset(score[g], 0, (size_t)n * sizeof(float));
    }
    if (any)
      add_values(f, type, heads, s, aci_flash_at(type, f->v, f->v_s, b, hk, c0), f->v_s[2] * size,
                 n, (const float(*)[CHUNK])score);
  }
  for (int g = 0; g < heads; g++) finish(f, type, &s[g], b, h + g);
}

static inline AC_INLINE void of_type(const aci_flash *f, const aci_gemm_type type, int64_t b,
                                     int64_t h, int64_t n, int64_t hk) {
  if (n == TOGETHER) {
    group(f, type, TOGETHER, b, h, hk);
    return;
  }
  for (int64_t g = 0; g < n; g++) group(f, type, 1, b, h + g, hk);
}

AC_ISA_FN(any_type, (const aci_flash *f, int64_t b, int64_t h, int64_t n, int64_t hk),
          (f, b, h, n, hk)) {
  if (f->type == ACI_GEMM_F32) of_type(f, ACI_GEMM_F32, b, h, n, hk);
  else if (f->type == ACI_GEMM_BF16) of_type(f, ACI_GEMM_BF16, b, h, n, hk);
  else of_type(f, ACI_GEMM_F16, b, h, n, hk);
}

typedef struct job {
  const aci_flash *f;
  int64_t share, parts; /* query heads of a key head. Groups of TOGETHER of them */
} job;

static void piece(void *arg, int64_t begin, int64_t end) {
  const job *w = arg;
  for (int64_t i = begin; i < end; i++) {
    const int64_t bk = i / w->parts, first = i % w->parts * TOGETHER, hk = bk % w->f->hkv;
    any_type(w->f, bk / w->f->hkv, hk * w->share + first, aci_least(TOGETHER, w->share - first),
             hk);
  }
}

bool aci_flash_decode(ac_team *team, const aci_flash *f) {
  if (!f->inference || f->tq != 1) return false;
  if (f->type == ACI_GEMM_F64 || f->drop_p > 0 || f->alibi != NULL || f->d > MAX_D) return false;
  job w = {.f = f, .share = f->hq / f->hkv};
  w.parts = (w.share + TOGETHER - 1) / TOGETHER;
  ac_parallel_for(team, f->b * f->hkv * w.parts, 1, piece, &w);
  return true;
}
