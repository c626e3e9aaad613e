/* Passes over tiles of scores (flash_tile.h). Every loop runs over a constant number of columns, so
 * that it becomes whole vectors. f32 and f64 come from the same text. */
#include "device/cpu/kernels/flash_tile.h"

#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "base/vmath.h"
#include "device/cpu/isa.h"

/* 2^t for t <= 1. Below -126.5 it is 0. Relative error 4e-9 before the last rounding. */
static inline AC_INLINE float exp2_f32(float t) {
  float c = t < -127.0f ? -127.0f : t;
  float k = c + ACI_ROUND32;
  float r = c - (k - ACI_ROUND32);
  float p = 0x1.3eb2d6p-13f;
  p = aci_fma32(p, r, 0x1.5f0b8ep-10f);
  p = aci_fma32(p, r, 0x1.3b320ap-7f);
  p = aci_fma32(p, r, 0x1.c6af76p-5f);
  p = aci_fma32(p, r, 0x1.ebfbd6p-3f);
  p = aci_fma32(p, r, 0x1.62e430p-1f);
  p = aci_fma32(p, r, 1.0f);
  return p * aci_float32((aci_bits32(k) - 0x4b400000u + 127u) << 23);
}
static inline AC_INLINE double exp2_f64(double t) { return exp2(t); }

/* One clone per ISA, each with the constant nr of that ISA's micro-kernel (vectors of 64, 32 and 16
 * bytes, two wide). */
#define NR_OF(T, vector_bytes) (2 * (vector_bytes) / (int)sizeof(T))
#define TILE_FN(NAME, T, PARAMS, ARGS) TILE_FN_(NAME, T, PARAMS, ARGS)
#if defined(__x86_64__)
#define TILE_FN_(NAME, T, PARAMS, ARGS)                       \
  ACI_TARGET_AVX512 static void NAME##_avx512 PARAMS {        \
    const int nr = NR_OF(T, 64);                              \
    NAME ARGS;                                                \
  }                                                           \
  ACI_TARGET_AVX2 static void NAME##_avx2 PARAMS {            \
    const int nr = NR_OF(T, 32);                              \
    NAME ARGS;                                                \
  }                                                           \
  static void NAME##_base PARAMS {                            \
    const int nr = NR_OF(T, 16);                              \
    NAME ARGS;                                                \
  }                                                           \
  void aci_tile_##NAME PARAMS {                               \
    switch (aci_cpu_isa()) {                                  \
      case ACI_ISA_AVX512: NAME##_avx512 ARGS_OF ARGS; break; \
      case ACI_ISA_AVX2: NAME##_avx2 ARGS_OF ARGS; break;     \
      default: NAME##_base ARGS_OF ARGS; break;               \
    }                                                         \
  }
#else
#define TILE_FN_(NAME, T, PARAMS, ARGS) \
  void aci_tile_##NAME PARAMS {         \
    const int nr = NR_OF(T, 16);        \
    NAME ARGS;                          \
  }
#endif
#define ARGS_OF(nr, ...) (__VA_ARGS__)

#define S f32
#define T float
#include "device/cpu/kernels/flash_passes.h"

#define S f64
#define T double
#include "device/cpu/kernels/flash_passes.h"

/* ---- bf16 operands ---- */
static inline AC_INLINE uint32_t round_bf16(float x) {
  uint32_t u = aci_bits32(x);
  return u + 0x7fffu + ((u >> 16) & 1u); /* the upper half is the rounded value */
}

static inline AC_INLINE void pairs(const int nr, uint32_t *dst, const float *src, int64_t rows) {
  uint32_t out[ACI_GEMM_NR_MAX]; /* dst may be src: a row is read before it is written */
  for (int64_t r = 0; r + 1 < rows; r += 2, src += 2 * nr, dst += nr) {
    for (int j = 0; j < nr; j++)
      out[j] = round_bf16(src[j]) >> 16 | (round_bf16(src[j + nr]) & 0xffff0000u);
    memcpy(dst, out, (size_t)nr * 4);
  }
  if (rows & 1) {
    for (int j = 0; j < nr; j++) out[j] = round_bf16(src[j]) >> 16;
    memcpy(dst, out, (size_t)nr * 4);
  }
}
TILE_FN(pairs, float, (uint32_t * dst, const float *src, int64_t rows), (nr, dst, src, rows))

AC_ISA_FN(bf16_isa, (uint16_t *restrict dst, const float *restrict src, int64_t n), (dst, src, n)) {
  for (int64_t i = 0; i < n; i++) dst[i] = (uint16_t)(round_bf16(src[i]) >> 16);
}
void aci_tile_bf16(uint16_t *dst, const float *src, int64_t n) { bf16_isa(dst, src, n); }

/* ---- dot products: 16 partial sums, added pairwise, so that the order is the same on every ISA ---- */
#define DOT(NAME, T, ACC, GET)                                                        \
  AC_ISA_FN(NAME, (const T *x, const T *y, int64_t n, double *out), (x, y, n, out)) { \
    ACC sum[16] = {0};                                                                \
    int64_t i = 0;                                                                    \
    for (; i + 16 <= n; i += 16)                                                      \
      for (int j = 0; j < 16; j++) sum[j] += GET(x[i + j]) * GET(y[i + j]);           \
    for (int j = 0; i < n; i++, j++) sum[j] += GET(x[i]) * GET(y[i]);                 \
    for (int w = 8; w > 0; w /= 2)                                                    \
      for (int j = 0; j < w; j++) sum[j] += sum[j + w];                               \
    *out = (double)sum[0];                                                            \
  }
#define SAME(x) (x)
DOT(dot_f64, double, double, SAME)
DOT(dot_f32, float, float, SAME)
DOT(dot_bf16, uint16_t, float, aci_bf16_to_f32)
DOT(dot_f16, uint16_t, float, aci_f16_to_f32)

double aci_tile_dot(aci_gemm_type type, const void *x, const void *y, int64_t n) {
  double sum = 0;
  switch (type) {
    case ACI_GEMM_F64: dot_f64(x, y, n, &sum); break;
    case ACI_GEMM_F32: dot_f32(x, y, n, &sum); break;
    case ACI_GEMM_BF16: dot_bf16(x, y, n, &sum); break;
    default: dot_f16(x, y, n, &sum); break;
  }
  return sum;
}

/* ---- masks: rare, so one element at a time ---- */
#define MASK_PASS(S, T)                                                                         \
  void aci_tile_mask_##S(const aci_tile *t, int n_cols, T *s, T c) {                            \
    const aci_flash *f = t->f;                                                                  \
    int64_t sr = f->mask_s[t->keys_are_rows ? 3 : 2], sc = f->mask_s[t->keys_are_rows ? 2 : 3]; \
    int64_t base = t->b * f->mask_s[0] + t->h * f->mask_s[1] + t->row0 * sr + t->col0 * sc;     \
    for (int64_t r = 0; r < t->rows; r++, s += t->nr)                                           \
      for (int j = 0; j < n_cols; j++) {                                                        \
        int64_t at = base + r * sr + j * sc;                                                    \
        if (f->mask_kind == ACI_FLASH_BOOL_MASK)                                                \
          s[j] = ((const uint8_t *)f->mask)[at] ? s[j] * c : (T)-INFINITY;                      \
        else s[j] = s[j] * c + (T)(aci_gemm_load(f->mask_type, f->mask, at) * ACI_LOG2E_64);    \
      }                                                                                         \
  }
MASK_PASS(f32, float)
MASK_PASS(f64, double)

/* ---- dropout ---- */

/* The words of a tile. w has rows rounded up to 4. Neighbours along the keys share a counter, so
 * runs of 4 aligned keys are drawn together: 4 rows when keys are rows, 4 columns when they are
 * columns. Otherwise each element draws for itself. */
AC_ISA_FN(words_of_rows,
          (uint32_t *restrict w, int64_t rows, int nr, uint64_t e0, uint64_t col_step, uint64_t key,
           uint64_t counter),
          (w, rows, nr, e0, col_step, key, counter)) {
  for (int64_t r = 0; r < rows; r += 4)
    for (int j = 0; j < nr; j++) {
      aci_u32x4 x = aci_philox(key, (e0 + (uint64_t)r + (uint64_t)j * col_step) / 4, counter);
      w[r * nr + j] = x.v[0];
      w[(r + 1) * nr + j] = x.v[1];
      w[(r + 2) * nr + j] = x.v[2];
      w[(r + 3) * nr + j] = x.v[3];
    }
}
AC_ISA_FN(words_of_columns,
          (uint32_t *restrict w, int64_t rows, int nr, uint64_t e0, uint64_t row_step, uint64_t key,
           uint64_t counter),
          (w, rows, nr, e0, row_step, key, counter)) {
  for (int64_t r = 0; r < rows; r++)
    for (int j = 0; j < nr / 4; j++) {
      aci_u32x4 x = aci_philox(key, (e0 + (uint64_t)r * row_step) / 4 + (uint64_t)j, counter);
      for (int i = 0; i < 4; i++) w[r * nr + 4 * j + i] = x.v[i];
    }
}
AC_ISA_FN(words_one_by_one,
          (uint32_t *restrict w, int64_t rows, int nr, uint64_t e0, uint64_t row_step,
           uint64_t col_step, uint64_t key, uint64_t counter),
          (w, rows, nr, e0, row_step, col_step, key, counter)) {
  for (int64_t r = 0; r < rows; r++)
    for (int j = 0; j < nr; j++) {
      uint64_t e = e0 + (uint64_t)r * row_step + (uint64_t)j * col_step;
      aci_u32x4 x = aci_philox(key, e / 4, counter);
      uint32_t low = e & 1 ? x.v[1] : x.v[0], high = e & 1 ? x.v[3] : x.v[2];
      w[r * nr + j] = e & 2 ? high : low;
    }
}

const aci_drop *aci_tile_drop(const aci_tile *t, uint32_t *w, aci_drop *drop) {
  const aci_flash *f = t->f;
  if (f->drop_p <= 0) return NULL;
  *drop = (aci_drop){w, f->drop_below, 1.0 / (1.0 - f->drop_p)};
  int64_t key0 = t->keys_are_rows ? t->row0 : t->col0,
          query0 = t->keys_are_rows ? t->col0 : t->row0;
  const int64_t *first = f->drop_0, *n = f->drop_n, key = first[3] + key0;
  uint64_t e0 = (uint64_t)((((first[0] + t->b) * n[1] + first[1] + t->h) * n[2] + first[2] +
                            query0) *
                               n[3] +
                           key),
           tk = (uint64_t)n[3];
  bool aligned = n[3] % 4 == 0 && key % 4 == 0;
  if (aligned && t->keys_are_rows)
    words_of_rows(w, t->rows, t->nr, e0, tk, f->drop_key, f->drop_counter);
  else if (aligned) words_of_columns(w, t->rows, t->nr, e0, tk, f->drop_key, f->drop_counter);
  else
    words_one_by_one(w, t->rows, t->nr, e0, t->keys_are_rows ? 1 : tk, t->keys_are_rows ? tk : 1,
                     f->drop_key, f->drop_counter);
  return drop;
}
