/* Products of rows of 4-bit codes with f32: see dot.h. The 16 values of the code lie in registers
 * and a permutation looks them up, 16 (8) codes at a time: a word of 32 bits holds eight codes, of
 * which shifts by 0, 4, ... 28 bring one after another to the low end. Values of x are arranged
 * beforehand in the order in which codes come that way. NEON looks up the low halves of 16 bytes,
 * then the high ones. */
#include "ops/quant/dot.h"

#include <string.h>

#include "device/cpu/isa.h"
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include "ops/quant/neon.h"
#endif

enum { CODES = 8 /* in a word */, AHEAD = 16384 /* bytes */ };

/* Words that a step takes. 0: this CPU has no kernel. */
static int lanes(void) {
#if defined(__x86_64__)
  return aci_cpu_isa() == ACI_ISA_AVX512 ? 16 : aci_cpu_isa() == ACI_ISA_AVX2 ? 8 : 0;
#elif defined(__aarch64__)
  return aci_cpu_isa() == ACI_ISA_NEON ? 4 : 0;
#else
  return 0;
#endif
}

bool aci_dot_4bit_fits(int64_t k, int64_t blocksize) {
  return lanes() != 0 && k > 0 && blocksize % 64 == 0 && k % blocksize == 0;
}

int64_t aci_dot_4bit_row(int64_t k) {
  const int64_t step = lanes() * CODES;
  return (k + step - 1) / step * step;
}

static bool in_bf16(aci_dot_round round) {
  return round == ACI_DOT_BF16 && lanes() == 16 && aci_dot_4bit_bf16_fits();
}

void aci_dot_4bit_arrange(aci_dot_round round, const float *x, int64_t k, float *to) {
  if (in_bf16(round)) {
    aci_dot_4bit_bf16_arrange(x, k, to);
    return;
  }
  const int n = lanes();
  const int64_t step = n * CODES;
  memset(to, 0, (size_t)aci_dot_4bit_row(k) * sizeof *to);
#if defined(__aarch64__)
  for (int64_t at = 0; at < k; at += step) /* k is a multiple of 64 */
    for (int i = 0; i < step / 2; i++) {
      to[at + i] = x[at + 2 * i + 1];
      to[at + step / 2 + i] = x[at + 2 * i];
    }
  return;
#endif
  for (int64_t at = 0; at < k; at += step)
    for (int shift = 0; shift < CODES; shift++)
      /* word i, code `shift` from the low end: of byte shift / 2 the low half comes first, the odd
       * element */
      for (int i = 0; i < n; i++) {
        const int64_t from = at + i * CODES + (shift & ~1) + 1 - (shift & 1);
        if (from < k) to[at + shift * n + i] = x[from];
      }
}

#if defined(__x86_64__)
/* Of f32 a block's sum is multiplied by its absmax. If x has 16 bits the weights equal the result
 * of dequantize in its dtype, as in PyTorch's product of such tensors: the table itself is
 * multiplied and rounded, once a block. */
ACI_TARGET_AVX512 static inline AC_INLINE __m512 rounded_512(__m512 v, const aci_dot_round round) {
  if (round == ACI_DOT_F16) return _mm512_cvtph_ps(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  const __m512i u = _mm512_castps_si512(v),
                odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))),
                       _mm512_set1_epi32((int)0xffff0000u)));
}

ACI_TARGET_AVX512 static inline AC_INLINE void
dot_512(const aci_dot_4bit_args *g, const aci_dot_round round, const bool pairs, const int m) {
  const __m512 table = _mm512_loadu_ps(g->map);
  const int64_t k = g->k, stride = g->stride;
  const uint8_t *q = g->q;
  const float *x = g->x, *absmax = g->absmax;
  __m512 total[ACI_DOT_ROWS];
#pragma GCC unroll 4
  for (int r = 0; r < m; r++) total[r] = _mm512_setzero_ps();
  for (int64_t at = 0; at < k; at += 128) {
    /* of the two blocks that a step has if blocks are of 64 */
    const bool half = pairs && k - at < 128;
    const __m512i words =
        half ? _mm512_maskz_loadu_epi32(0xff, q + at / 2) : _mm512_loadu_si512(q + at / 2);
    const float first = absmax[at / g->blocksize], second = !pairs ? first
                                                            : half ? 0
                                                                   : absmax[at / 64 + 1];
    __m512 low = table, high = table, sum[ACI_DOT_ROWS];
    __builtin_prefetch((const void *)((uintptr_t)(q + at / 2) + AHEAD), 0, 2);
    if (round != ACI_DOT_F32) {
      low = rounded_512(_mm512_mul_ps(table, _mm512_set1_ps(first)), round);
      high = pairs ? rounded_512(_mm512_mul_ps(table, _mm512_set1_ps(second)), round) : low;
    }
#pragma GCC unroll 4
    for (int r = 0; r < m; r++) sum[r] = round == ACI_DOT_F32 ? _mm512_setzero_ps() : total[r];
#pragma GCC unroll 8
    for (int shift = 0; shift < CODES; shift++) {
      const __m512i code = _mm512_srli_epi32(words, (unsigned)(4 * shift));
      __m512 w = _mm512_permutexvar_ps(code, low);
      if (round != ACI_DOT_F32 && pairs) w = _mm512_mask_permutexvar_ps(w, 0xff00, code, high);
#pragma GCC unroll 4
      for (int r = 0; r < m; r++)
        sum[r] = _mm512_fmadd_ps(w, _mm512_loadu_ps(x + r * stride + at + shift * 16), sum[r]);
    }
    const __m512 scale = pairs
                             ? _mm512_insertf32x8(_mm512_set1_ps(first), _mm256_set1_ps(second), 1)
                             : _mm512_set1_ps(first);
#pragma GCC unroll 4
    for (int r = 0; r < m; r++)
      total[r] = round == ACI_DOT_F32 ? _mm512_fmadd_ps(sum[r], scale, total[r]) : sum[r];
  }
#pragma GCC unroll 4
  for (int r = 0; r < m; r++) g->y[r * g->ldy] = _mm512_reduce_add_ps(total[r]);
}

ACI_TARGET_AVX2 static inline AC_INLINE float sum_256(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

ACI_TARGET_AVX2 static inline AC_INLINE __m256 rounded_256(__m256 v, const aci_dot_round round) {
  if (round == ACI_DOT_F16) return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  const __m256i u = _mm256_castps_si256(v),
                odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  return _mm256_castsi256_ps(
      _mm256_and_si256(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))),
                       _mm256_set1_epi32((int)0xffff0000u)));
}

/* A step is half as wide and lies in one block: pairs has no meaning here. */
ACI_TARGET_AVX2 static inline AC_INLINE void
dot_256(const aci_dot_4bit_args *g, const aci_dot_round round, const bool pairs, const int m) {
  const __m256 small = _mm256_loadu_ps(g->map), large = _mm256_loadu_ps(g->map + 8);
  const int64_t k = g->k, stride = g->stride;
  const uint8_t *q = g->q;
  const float *x = g->x;
  __m256 total[ACI_DOT_ROWS];
  (void)pairs;
#pragma GCC unroll 4
  for (int r = 0; r < m; r++) total[r] = _mm256_setzero_ps();
  for (int64_t at = 0; at < k; at += 64) {
    const __m256i words = _mm256_loadu_si256((const void *)(q + at / 2));
    const __m256 scale = _mm256_set1_ps(g->absmax[at / g->blocksize]);
    __m256 low = small, high = large, sum[ACI_DOT_ROWS];
    __builtin_prefetch((const void *)((uintptr_t)(q + at / 2) + AHEAD), 0, 2);
    if (round != ACI_DOT_F32) {
      low = rounded_256(_mm256_mul_ps(small, scale), round);
      high = rounded_256(_mm256_mul_ps(large, scale), round);
    }
#pragma GCC unroll 4
    for (int r = 0; r < m; r++) sum[r] = round == ACI_DOT_F32 ? _mm256_setzero_ps() : total[r];
#pragma GCC unroll 8
    for (int shift = 0; shift < CODES; shift++) {
      /* the permutation takes the low three bits, the blend the fourth */
      const __m256i code = _mm256_srli_epi32(words, 4 * shift);
      const __m256 w = _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, code),
                                        _mm256_permutevar8x32_ps(high, code),
                                        _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)));
#pragma GCC unroll 4
      for (int r = 0; r < m; r++)
        sum[r] = _mm256_fmadd_ps(w, _mm256_loadu_ps(x + r * stride + at + shift * 8), sum[r]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < m; r++)
      total[r] = round == ACI_DOT_F32 ? _mm256_fmadd_ps(sum[r], scale, total[r]) : sum[r];
  }
#pragma GCC unroll 4
  for (int r = 0; r < m; r++) g->y[r * g->ldy] = sum_256(total[r]);
}

#elif defined(__aarch64__)
/* As in the kernels of x86. */
static inline AC_INLINE float32x4_t rounded_128(float32x4_t v, const aci_dot_round round) {
  if (round == ACI_DOT_F16) return vcvt_f32_f16(vcvt_f16_f32(v));
  const uint32x4_t u = vreinterpretq_u32_f32(v),
                   odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1)),
                   near = vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  return vreinterpretq_f32_u32(vandq_u32(near, vdupq_n_u32(0xffff0000u)));
}

static inline AC_INLINE void dot_128(const aci_dot_4bit_args *g, const aci_dot_round round,
                                     const bool pairs, const int m) {
  const int64_t k = g->k, stride = g->stride;
  const uint8_t *q = g->q;
  uint8x16x4_t table = aci_neon_table(g->map);
  float32x4_t total[ACI_DOT_ROWS];
  (void)pairs;
#pragma GCC unroll 4
  for (int r = 0; r < m; r++) total[r] = vdupq_n_f32(0);
  for (int64_t block = 0; block < k; block += g->blocksize) {
    const float scale = g->absmax[block / g->blocksize];
    float32x4_t sum[ACI_DOT_ROWS];
    if (round != ACI_DOT_F32) {
      float scaled[16];
      for (int i = 0; i < 16; i += 4)
        vst1q_f32(scaled + i, rounded_128(vmulq_n_f32(vld1q_f32(g->map + i), scale), round));
      table = aci_neon_table(scaled);
    }
#pragma GCC unroll 4
    for (int r = 0; r < m; r++) sum[r] = round == ACI_DOT_F32 ? vdupq_n_f32(0) : total[r];
    for (int64_t at = block; at < block + g->blocksize; at += 32) {
      const uint8x16_t codes = vld1q_u8(q + at / 2);
      __builtin_prefetch((const void *)((uintptr_t)(q + at / 2) + AHEAD), 0, 2);
#pragma GCC unroll 2
      for (int half = 0; half < 2; half++) {
        float32x4_t w[4];
        aci_neon_lookup(table, half == 0 ? vandq_u8(codes, vdupq_n_u8(15)) : vshrq_n_u8(codes, 4),
                        w);
        const float *x = g->x + at + 16 * half;
#pragma GCC unroll 4
        for (int r = 0; r < m; r++)
#pragma GCC unroll 4
          for (int v = 0; v < 4; v++)
            sum[r] = vfmaq_f32(sum[r], w[v], vld1q_f32(x + r * stride + 4 * v));
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < m; r++)
      total[r] = round == ACI_DOT_F32 ? vfmaq_n_f32(total[r], sum[r], scale) : sum[r];
  }
#pragma GCC unroll 4
  for (int r = 0; r < m; r++) g->y[r * g->ldy] = vaddvq_f32(total[r]);
}
#endif

#if defined(__x86_64__) || defined(__aarch64__)
#define BY_ROWS(NAME, TARGET, ROUND, PAIRS)                                   \
  TARGET static void NAME##_##ROUND##_##PAIRS(const aci_dot_4bit_args *all) { \
    aci_dot_4bit_args g = *all; /* of one row */                              \
    for (int64_t i = 0; i < all->n; i++) {                                    \
      switch (g.m) {                                                          \
        case 1: NAME(&g, ROUND, PAIRS, 1); break;                             \
        case 2: NAME(&g, ROUND, PAIRS, 2); break;                             \
        case 3: NAME(&g, ROUND, PAIRS, 3); break;                             \
        default: NAME(&g, ROUND, PAIRS, 4);                                   \
      }                                                                       \
      g.q += g.k / 2;                                                         \
      g.absmax += g.k / g.blocksize;                                          \
      g.y++;                                                                  \
    }                                                                         \
  }
#define BY_ROUND(NAME, TARGET, PAIRS)        \
  BY_ROWS(NAME, TARGET, ACI_DOT_F32, PAIRS)  \
  BY_ROWS(NAME, TARGET, ACI_DOT_BF16, PAIRS) \
  BY_ROWS(NAME, TARGET, ACI_DOT_F16, PAIRS)
enum { SINGLE, PAIRED };
#if defined(__x86_64__)
BY_ROUND(dot_512, ACI_TARGET_AVX512, SINGLE)
BY_ROUND(dot_512, ACI_TARGET_AVX512, PAIRED)
BY_ROUND(dot_256, ACI_TARGET_AVX2, SINGLE)
#else
BY_ROUND(dot_128, , SINGLE)
#endif
#define ROUNDS(NAME, PAIRS) \
  { NAME##_ACI_DOT_F32_##PAIRS, NAME##_ACI_DOT_BF16_##PAIRS, NAME##_ACI_DOT_F16_##PAIRS }
#endif

void aci_dot_4bit(const aci_dot_4bit_args *g) {
  if (in_bf16(g->round)) {
    aci_dot_4bit_bf16(g);
    return;
  }
#if defined(__x86_64__)
  static void (*const by[3][3])(const aci_dot_4bit_args *) = {
      ROUNDS(dot_512, SINGLE), ROUNDS(dot_512, PAIRED), ROUNDS(dot_256, SINGLE)};
  by[lanes() != 16 ? 2 : g->blocksize == 64][g->round](g);
#elif defined(__aarch64__)
  static void (*const by[3])(const aci_dot_4bit_args *) = ROUNDS(dot_128, SINGLE);
  by[g->round](g);
#else
  (void)g;
#endif
}
