/* Products of rows of 4-bit codes with bf16, on CPUs with its dot products: see dot.h. The 16 values of two blocks, times their absmax and
 * rounded, are the 32 words of a register, from which a permutation takes those of 32 codes at a time: the four codes of a word of 16 bits
 * one after another. An instruction multiplies them with 32 values of x, which are arranged beforehand in that order. */
#include <string.h>

#include "base/vmath.h"
#include "device/cpu/gemm_impl.h"
#include "device/cpu/isa.h"
#include "ops/quant/dot.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { STEP = 128 /* codes: 64 bytes, two blocks of 64 or a part of one */, AHEAD = 16384 /* bytes */ };

bool aci_dot_4bit_bf16_fits(void) {
#if defined(__x86_64__)
  return aci_gemm_kernel_for(ACI_GEMM_BF16)->pack == ACI_PACK_BF16;
#else
  return false;
#endif
}

void aci_dot_4bit_bf16_arrange(const float *x, int64_t k, float *to) {
  uint16_t *w = (uint16_t *)(void *)to;
  memset(w, 0, (size_t)((k + STEP - 1) / STEP * STEP) * sizeof *w);
  static const int element[4] = {1, 0, 3, 2}; /* of code v from the low end of a word */
  for (int64_t at = 0; at < k; at += STEP)
    for (int v = 0; v < 4; v++)
      for (int i = 0; i < 32; i++) {
        const int64_t from = at + 4 * i + element[v];
        if (from < k) w[at + v * 32 + i] = aci_f32_to_bf16(x[from]);
      }
}

#if defined(__x86_64__)
ACI_TARGET_AVX512_BF16 static inline AC_INLINE void rows(const aci_dot_4bit_args *g, const int m) {
  const __m512 map = _mm512_loadu_ps(g->map);
  const __m512i nibble = _mm512_set1_epi16(15), block = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(16), 1);
  const int64_t k = g->k, blocks = k / g->blocksize;
  const int shift = __builtin_ctzll((unsigned long long)g->blocksize);
  const uint16_t *x = (const uint16_t *)(const void *)g->x;
  for (int64_t i = 0; i < g->n; i++) {
    const uint8_t *q = g->q + i * (k / 2);
    const float *absmax = g->absmax + i * blocks;
    __m512 sum[ACI_DOT_ROWS][2];
#pragma GCC unroll 4
    for (int r = 0; r < m; r++) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    for (int64_t at = 0; at < k; at += STEP) {
      const bool half = k - at < STEP;
      const __m512i codes = half ? _mm512_maskz_loadu_epi64(0x0f, q + at / 2) : _mm512_loadu_si512(q + at / 2);
      const __m512 first = _mm512_mul_ps(map, _mm512_set1_ps(absmax[at >> shift]));
      const __m512 second = half ? _mm512_setzero_ps() : _mm512_mul_ps(map, _mm512_set1_ps(absmax[(at + 64) >> shift]));
      __builtin_prefetch((const void *)((uintptr_t)(q + at / 2) + AHEAD), 0, 2);
      const __m512i table = (__m512i)_mm512_cvtne2ps_pbh(second, first);
      __m512bh w[4];
#pragma GCC unroll 4
      for (int v = 0; v < 4; v++) { /* (codes & 15) | block */
        const __m512i code = _mm512_ternarylogic_epi32(_mm512_srli_epi16(codes, (unsigned)(4 * v)), nibble, block, 0xea);
        w[v] = (__m512bh)_mm512_permutexvar_epi16(code, table);
      }
#pragma GCC unroll 4
      for (int r = 0; r < m; r++) {
        const uint16_t *from = x + r * 2 * g->stride + at;
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++)
          sum[r][v & 1] = _mm512_dpbf16_ps(sum[r][v & 1], w[v], (__m512bh)_mm512_loadu_si512(from + v * 32));
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < m; r++) g->y[r * g->ldy + i] = _mm512_reduce_add_ps(_mm512_add_ps(sum[r][0], sum[r][1]));
  }
}

#define ROWS(M) \
  ACI_TARGET_AVX512_BF16 static void rows_##M(const aci_dot_4bit_args *g) { rows(g, M); }
ROWS(1) ROWS(2) ROWS(3) ROWS(4)
#endif

void aci_dot_4bit_bf16(const aci_dot_4bit_args *g) {
#if defined(__x86_64__)
  static void (*const by[])(const aci_dot_4bit_args *) = {rows_1, rows_2, rows_3, rows_4};
  by[g->m - 1](g);
#else
  (void)g;
#endif
}
