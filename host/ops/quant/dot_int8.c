/* Products of rows of int8: see dot.h. VNNI multiplies unsigned by signed bytes: weights are taken
 * with 128 added, and 128 times the sum of x is taken off again. Arm multiplies signed bytes: one
 * row of x by sums of four products, more rows two by two with rows of w. */
#include "ops/quant/dot.h"

#include <stdatomic.h>

#include "device/cpu/arm.h"
#include "device/cpu/isa.h"
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#include <string.h>
#endif

enum {
  AHEAD = 16384 /* bytes */,
  PIECE = 32768 /* bytes whose sum, 255 x 128 each, an i32 holds */
};

#if defined(__x86_64__)
#if defined(__clang__)
#define TARGET_VNNI \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c,bmi2")))
#else
#define TARGET_VNNI      \
  __attribute__((target( \
      "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c,bmi2,prefer-vector-width=512")))
#endif

/* y[r * step] += for one row of w. */
TARGET_VNNI static inline AC_INLINE void dot_vnni(const int8_t *w, const int8_t *x, int64_t stride,
                                                  const int m, int64_t k, int64_t *y,
                                                  int64_t step) {
  const __m512i flip = _mm512_set1_epi8((char)0x80);
  __m512i sum[ACI_DOT_ROWS], other[ACI_DOT_ROWS]; /* two chains: the instruction takes 4 cycles */
#pragma GCC unroll 4
  for (int r = 0; r < m; r++) sum[r] = other[r] = _mm512_setzero_si512();
  int64_t at = 0;
  for (; at + 128 <= k; at += 128) {
    const __m512i a = _mm512_xor_si512(_mm512_loadu_si512(w + at), flip),
                  b = _mm512_xor_si512(_mm512_loadu_si512(w + at + 64), flip);
    __builtin_prefetch((const void *)((uintptr_t)(w + at) + AHEAD), 0, 2);
    __builtin_prefetch((const void *)((uintptr_t)(w + at) + AHEAD + 64), 0, 2);
#pragma GCC unroll 4
    for (int r = 0; r < m; r++) {
      sum[r] = _mm512_dpbusd_epi32(sum[r], a, _mm512_loadu_si512(x + r * stride + at));
      other[r] = _mm512_dpbusd_epi32(other[r], b, _mm512_loadu_si512(x + r * stride + at + 64));
    }
  }
  /* bytes after the row are not read. Zeros of x remove the flipped zeros of w */
  for (; at < k; at += 64) {
    const __mmask64 in = k - at < 64 ? (__mmask64)((UINT64_C(1) << (k - at)) - 1) : ~(__mmask64)0;
    const __m512i a = _mm512_xor_si512(_mm512_maskz_loadu_epi8(in, w + at), flip);
#pragma GCC unroll 4
    for (int r = 0; r < m; r++)
      sum[r] = _mm512_dpbusd_epi32(sum[r], a, _mm512_maskz_loadu_epi8(in, x + r * stride + at));
  }
#pragma GCC unroll 4
  for (int r = 0; r < m; r++)
    y[r * step] += _mm512_reduce_add_epi32(_mm512_add_epi32(sum[r], other[r]));
}

TARGET_VNNI static void dot_vnni_rows(const int8_t *w, int64_t n, int64_t row, const int8_t *x,
                                      int64_t stride, int m, int64_t k, int64_t *y) {
#define ROWS(M) \
  for (int64_t i = 0; i < n; i++) dot_vnni(w + i * row, x, stride, M, k, y + i, n)
  if (m == 1) ROWS(1);
  else if (m == 2) ROWS(2);
  else if (m == 3) ROWS(3);
  else ROWS(4);
#undef ROWS
}

static bool has_vnni(void) {
  static _Atomic int cached = -1;
  int has = atomic_load_explicit(&cached, memory_order_relaxed);
  if (__builtin_expect(has < 0, 0)) {
    has = aci_cpu_isa() == ACI_ISA_AVX512 && __builtin_cpu_supports("avx512vnni") != 0;
    atomic_store_explicit(&cached, has, memory_order_relaxed);
  }
  return has != 0;
}
#elif defined(__aarch64__)
ACI_TARGET_DOT static void dot_sdot(const int8_t *w, const int8_t *x, int64_t k, int64_t *y) {
  int32x4_t sum = vdupq_n_s32(0), other = sum;
  int64_t at = 0;
  for (; at + 32 <= k; at += 32) {
    __builtin_prefetch((const void *)((uintptr_t)(w + at) + AHEAD), 0, 2);
    sum = vdotq_s32(sum, vld1q_s8(w + at), vld1q_s8(x + at));
    other = vdotq_s32(other, vld1q_s8(w + at + 16), vld1q_s8(x + at + 16));
  }
  int32_t rest = 0;
  for (; at < k; at++) rest += w[at] * x[at];
  *y += vaddvq_s32(vaddq_s32(sum, other)) + rest;
}

enum { W_ROWS = 4, MMLA_PIECE = 4096 /* bytes of a row of x that are put in order at a time */ };

/* The product of w's rows 2 i, 2 i + 1 and x's rows 2 j, 2 j + 1 is added to sum[i][j], where x has
 * eight bytes of one row, then of the other. */
ACI_TARGET_I8MM static inline AC_INLINE void mmla_step(const int8_t *const *w, int64_t at,
                                                       const int8_t *x, const int pairs,
                                                       int32x4_t sum[2][2]) {
#pragma GCC unroll 2
  for (int i = 0; i < W_ROWS / 2; i++) {
    const int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(w[2 * i] + at)),
                    b = vreinterpretq_s64_s8(vld1q_s8(w[2 * i + 1] + at));
    const int8x16_t low = vreinterpretq_s8_s64(vzip1q_s64(a, b)),
                    high = vreinterpretq_s8_s64(vzip2q_s64(a, b));
#pragma GCC unroll 2
    for (int j = 0; j < pairs; j++) {
      sum[i][j] = vmmlaq_s32(sum[i][j], low, vld1q_s8(x + j * 2 * MMLA_PIECE));
      sum[i][j] = vmmlaq_s32(sum[i][j], high, vld1q_s8(x + j * 2 * MMLA_PIECE + 16));
    }
  }
}

/* For two to four rows of x and k <= MMLA_PIECE. */
ACI_TARGET_I8MM static inline AC_INLINE void mmla(const int8_t *w, int64_t n, int64_t row,
                                                  const int8_t *x, int64_t stride, const int pairs,
                                                  int m, int64_t k, int64_t *y) {
  int8_t in_order[2 * 2 * MMLA_PIECE];
  const int64_t whole = k / 16 * 16;
  for (int j = 0; j < pairs; j++) memset(in_order + (2 * j * MMLA_PIECE), 0, 2 * MMLA_PIECE);
  for (int r = 0; r < m; r++)
    for (int64_t at = 0; at < k; at++)
      in_order[r / 2 * 2 * MMLA_PIECE + at / 8 * 16 + r % 2 * 8 + at % 8] = x[r * stride + at];
  for (int64_t i = 0; i < n; i += W_ROWS) {
    const int8_t *from[W_ROWS], *end[W_ROWS];
    int8_t rest[W_ROWS][16] = {{0}};
    int32x4_t sum[2][2] = {{vdupq_n_s32(0), vdupq_n_s32(0)}, {vdupq_n_s32(0), vdupq_n_s32(0)}};
    for (int c = 0; c < W_ROWS; c++) { /* the last one again, which is not stored */
      from[c] = w + (i + c < n ? i + c : n - 1) * row;
      end[c] = rest[c];
      memcpy(rest[c], from[c] + whole, (size_t)(k - whole));
    }
    for (int64_t at = 0; at < whole; at += 16) mmla_step(from, at, in_order + 2 * at, pairs, sum);
    if (whole < k) mmla_step(end, 0, in_order + 2 * whole, pairs, sum);
    for (int c = 0; c < W_ROWS && i + c < n; c++)
      for (int r = 0; r < m; r++) {
        int32_t out[4];
        vst1q_s32(out, sum[c / 2][r / 2]);
        y[r * n + i + c] += out[c % 2 * 2 + r % 2];
      }
  }
}

ACI_TARGET_I8MM static void dot_mmla(const int8_t *w, int64_t n, int64_t row, const int8_t *x,
                                     int64_t stride, int m, int64_t k, int64_t *y) {
  for (int64_t at = 0; at < k; at += MMLA_PIECE) {
    const int64_t some = k - at < MMLA_PIECE ? k - at : MMLA_PIECE;
    if (m == 2) mmla(w + at, n, row, x + at, stride, 1, m, some, y);
    else mmla(w + at, n, row, x + at, stride, 2, m, some, y);
  }
}
#endif

AC_ISA_FN(dot_plain, (const int8_t *restrict w, const int8_t *restrict x, int64_t k, int64_t *y),
          (w, x, k, y)) {
  int32_t sum = 0;
  for (int64_t i = 0; i < k; i++) sum += (int16_t)w[i] * (int16_t)x[i];
  *y += sum;
}

void aci_dot_int8(const int8_t *w, int64_t n, const int8_t *x, int64_t stride, const int64_t *sums,
                  int m, int64_t k, int64_t *y) {
  for (int64_t i = 0; i < m * n; i++) y[i] = 0;
  for (int64_t at = 0; at < k; at += PIECE) {
    const int64_t some = k - at < PIECE ? k - at : PIECE;
#if defined(__x86_64__)
    if (has_vnni()) {
      dot_vnni_rows(w + at, n, k, x + at, stride, m, some, y);
      continue;
    }
#elif defined(__aarch64__)
    if (m > 1 && aci_cpu_arm() & ACI_ARM_I8MM) {
      dot_mmla(w + at, n, k, x + at, stride, m, some, y);
      continue;
    }
    if (aci_cpu_arm() & ACI_ARM_DOT) {
      for (int64_t i = 0; i < n; i++)
        for (int r = 0; r < m; r++)
          dot_sdot(w + i * k + at, x + at + r * stride, some, &y[r * n + i]);
      continue;
    }
#endif
    for (int64_t i = 0; i < n; i++)
      for (int r = 0; r < m; r++)
        dot_plain(w + i * k + at, x + at + r * stride, some, &y[r * n + i]);
  }
#if defined(__x86_64__)
  if (has_vnni())
    for (int r = 0; r < m; r++)
      for (int64_t i = 0; i < n; i++) y[r * n + i] -= 128 * sums[r];
#else
  (void)sums;
#endif
}
