/* Products of rows of 4-bit codes with bf16, on CPUs with its dot products: see dot.h. The 16
 * values of two blocks, times their absmax and rounded, are the 32 words of a register. A
 * permutation takes those of 32 codes at a time from it: the four codes of a word of 16 bits one
 * after another. An instruction multiplies them with 32 values of x, which are arranged beforehand
 * in that order. */
#include "device/cpu/gemm_impl.h"
#include "device/cpu/isa.h"
#include "ops/quant/dot.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum {
  STEP = 128 /* codes: 64 bytes, two blocks of 64 or a part of one */,
  AHEAD = 16384 /* bytes */,
  COLS = 4
};

bool aci_dot_4bit_bf16_fits(void) {
#if defined(__x86_64__)
  return aci_gemm_kernel_for(ACI_GEMM_BF16)->pack == ACI_PACK_BF16;
#else
  return false;
#endif
}

#if defined(__x86_64__)
/* x[4 i + element] for i < 32 of 128 values. */
ACI_TARGET_AVX512_BF16 static inline AC_INLINE __m512i every_fourth(const __m512i *x, int element) {
  const __m512i lane = _mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17,
                                        16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  /* of 64, its low six bits */
  const __m512i from =
      _mm512_add_epi16(_mm512_slli_epi16(lane, 2), _mm512_set1_epi16((short)element));
  const __m512i low = _mm512_permutex2var_epi16(x[0], from, x[1]),
                high = _mm512_permutex2var_epi16(x[2], from, x[3]);
  return _mm512_inserti64x4(low, _mm512_castsi512_si256(high), 1);
}

ACI_TARGET_AVX512_BF16 static void arrange(const float *x, int64_t k, uint16_t *to) {
  static const int element[4] = {1, 0, 3, 2}; /* of code v from the low end of a word */
  for (int64_t at = 0; at < k; at += STEP) {
    __m512i part[4];
    for (int i = 0; i < 4; i++)
      part[i] = at + 32 * i < k /* a multiple of 64 */
                    ? (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + at + 32 * i + 16),
                                                   _mm512_loadu_ps(x + at + 32 * i))
                    : _mm512_setzero_si512();
    for (int v = 0; v < 4; v++)
      _mm512_storeu_si512(to + at + v * 32, every_fourth(part, element[v]));
  }
}

/* The values of the code times the magnitudes of the two blocks of a step, rounded as dequantize
 * does in bf16. */
ACI_TARGET_AVX512_BF16 static inline AC_INLINE __m512i table_of(__m512 map, float first,
                                                                float second) {
  return (__m512i)_mm512_cvtne2ps_pbh(_mm512_mul_ps(map, _mm512_set1_ps(second)),
                                      _mm512_mul_ps(map, _mm512_set1_ps(first)));
}

typedef __m512 sums[ACI_DOT_ROWS][2];

/* sum[c][r] += the products of a step, 128 values of x_r at `x` with codes[c], which stand for the
 * words of table[c]. */
ACI_TARGET_AVX512_BF16 static inline AC_INLINE void step(const __m512i *codes, const __m512i *table,
                                                         const uint16_t *x, int64_t stride,
                                                         const int cols, const int m, sums *sum) {
  const __m512i nibble = _mm512_set1_epi16(15),
                block = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(16), 1);
#pragma GCC unroll 4
  for (int c = 0; c < cols; c++) {
    __m512bh w[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) { /* (codes & 15) | block */
      const __m512i code = _mm512_ternarylogic_epi32(_mm512_srli_epi16(codes[c], (unsigned)(4 * v)),
                                                     nibble, block, 0xea);
      w[v] = (__m512bh)_mm512_permutexvar_epi16(code, table[c]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < m; r++)
#pragma GCC unroll 4
      for (int v = 0; v < 4; v++)
        sum[c][r][v & 1] = _mm512_dpbf16_ps(
            sum[c][r][v & 1], w[v], (__m512bh)_mm512_loadu_si512(x + r * 2 * stride + v * 32));
  }
}

/* `cols` rows of the weight side by side: values of x are read once for all, and several parts of
 * memory are on their way. */
ACI_TARGET_AVX512_BF16 static inline AC_INLINE void
columns(const aci_dot_4bit_args *g, int64_t first, const int cols, const int m) {
  const __m512 map = _mm512_loadu_ps(g->map);
  const int64_t k = g->k, blocks = k / g->blocksize, whole = k / STEP * STEP, row = k / 2;
  const int shift = __builtin_ctzll((unsigned long long)g->blocksize);
  const uint16_t *x = (const uint16_t *)(const void *)g->x;
  const uint8_t *q = g->q + first * row;
  const float *absmax = g->absmax + first * blocks;
  sums sum[COLS];
  __m512i codes[COLS], table[COLS];
#pragma GCC unroll 4
  for (int c = 0; c < cols; c++)
#pragma GCC unroll 4
    for (int r = 0; r < m; r++) sum[c][r][0] = sum[c][r][1] = _mm512_setzero_ps();
  for (int64_t at = 0; at < whole; at += STEP) {
#pragma GCC unroll 4
    for (int c = 0; c < cols; c++) {
      const uint8_t *from = q + c * row + at / 2;
      const float *of = absmax + c * blocks;
      codes[c] = _mm512_loadu_si512(from);
      table[c] = table_of(map, of[at >> shift], of[(at + STEP / 2) >> shift]);
      __builtin_prefetch((const void *)((uintptr_t)from + AHEAD), 0, 2);
    }
    step(codes, table, x + at, g->stride, cols, m, sum);
  }
  if (whole < k) { /* half a step, one block */
#pragma GCC unroll 4
    for (int c = 0; c < cols; c++) {
      codes[c] = _mm512_maskz_loadu_epi64(0x0f, q + c * row + whole / 2);
      table[c] = table_of(map, absmax[c * blocks + (whole >> shift)], 0);
    }
    step(codes, table, x + whole, g->stride, cols, m, sum);
  }
#pragma GCC unroll 4
  for (int c = 0; c < cols; c++)
#pragma GCC unroll 4
    for (int r = 0; r < m; r++)
      g->y[r * g->ldy + first + c] =
          _mm512_reduce_add_ps(_mm512_add_ps(sum[c][r][0], sum[c][r][1]));
}

ACI_TARGET_AVX512_BF16 static inline AC_INLINE void rows(const aci_dot_4bit_args *g, const int cols,
                                                         const int m) {
  int64_t i = 0;
  for (; i + cols <= g->n; i += cols) columns(g, i, cols, m);
  for (; i < g->n; i++) columns(g, i, 1, m);
}

#define ROWS(M)                                                             \
  ACI_TARGET_AVX512_BF16 static void rows_##M(const aci_dot_4bit_args *g) { \
    rows(g, M == 1 ? COLS : M == 2 ? 2 : 1, M);                             \
  }
ROWS(1)
ROWS(2)
ROWS(3)
ROWS(4)
#endif

void aci_dot_4bit_bf16_arrange(const float *x, int64_t k, float *to) {
#if defined(__x86_64__)
  arrange(x, k, (uint16_t *)(void *)to);
#else
  (void)x, (void)k, (void)to;
#endif
}

void aci_dot_4bit_bf16(const aci_dot_4bit_args *g) {
#if defined(__x86_64__)
  static void (*const by[])(const aci_dot_4bit_args *) = {rows_1, rows_2, rows_3, rows_4};
  by[g->m - 1](g);
#else
  (void)g;
#endif
}
