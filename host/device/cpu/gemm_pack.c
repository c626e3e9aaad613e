/* Packing of operands into panels, and the way back: from accumulators to C. Called by gemm.c and
 * the attention kernels.
 *
 * A panel of width W holds, for each step of k, W values side by side (pairs of values of k when
 * the micro-kernel multiplies pairs). Sources are contiguous along the width (copied row by row),
 * along k (transposed in blocks), or neither. 16-bit floats become f32 unless the micro-kernel
 * takes bf16. */
#include <string.h>

#include "base/vmath.h"
#include "device/cpu/gemm_impl.h"
#include "device/cpu/isa.h"
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

enum { TMP_K = 64, BLOCK_K = 8, ROUND_K = 32, ROUND_W = 128, ROWS_AHEAD = 8 };

/* Rows of a source that is contiguous along the width are short and far apart, which the hardware
 * does not prefetch. So rows ahead of p are prefetched here, even past the end. stride: of the
 * rows, in bytes. */
static inline AC_INLINE void ask_ahead(const void *p, int64_t stride) {
  __builtin_prefetch((const void *)((uintptr_t)p + (uintptr_t)(ROWS_AHEAD * stride)));
}

/* ---- one panel, any ISA ---- */
#define PACK_PLAIN(NAME, T)                                                                    \
  AC_ISA_FN(NAME,                                                                              \
            (T *restrict dst, int width, int w, int64_t kc, const T *restrict src, int64_t ws, \
             int64_t ks),                                                                      \
            (dst, width, w, kc, src, ws, ks)) {                                                \
    if (w < width) memset(dst, 0, (size_t)(width * kc) * sizeof(T));                           \
    if (ws == 1) {                                                                             \
      for (int64_t k = 0; k < kc; k++)                                                         \
        for (int i = 0; i < w; i++) dst[k * width + i] = src[k * ks + i];                      \
      return;                                                                                  \
    }                                                                                          \
    for (int64_t k0 = 0; k0 < kc;                                                              \
         k0 += 16) { /* blocks, so that lines of dst and src stay in L1 */                     \
      int64_t k1 = k0 + 16 < kc ? k0 + 16 : kc;                                                \
      for (int i = 0; i < w; i++)                                                              \
        for (int64_t k = k0; k < k1; k++) dst[k * width + i] = src[i * ws + k * ks];           \
    }                                                                                          \
  }
PACK_PLAIN(pack_plain32, float)
PACK_PLAIN(pack_plain64, double)

/* ---- one panel, AVX-512 ---- */
#if defined(__x86_64__)
static ACI_TARGET_AVX512 inline __mmask16 mask16(int64_t n) {
  return n >= 16 ? (__mmask16)0xffff : n <= 0 ? (__mmask16)0 : (__mmask16)((1u << n) - 1);
}
static ACI_TARGET_AVX512 inline __mmask32 mask32(int64_t n) {
  return n >= 32 ? (__mmask32)0xffffffff : n <= 0 ? (__mmask32)0 : (__mmask32)((1u << n) - 1);
}

/* r[i] lane j <-> r[j] lane i, of 32-bit lanes: 2x2 within pairs of rows, then 4x4, then 128-bit
 * quarters. */
static ACI_TARGET_AVX512 inline AC_INLINE void transpose16(__m512i r[16]) {
  __m512i t[16];
  _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) {
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

/* Sources of the 32-bit steps of a panel: f32, a 16-bit float, or two values of 16 bits. */
typedef enum source { STEP_F32, STEP_BF16, STEP_F16, STEP_PAIR } source;

static inline AC_INLINE int step_bytes(const source s) {
  return s == STEP_BF16 || s == STEP_F16 ? 2 : 4;
}

/* The first n values (of which a pair has two) from p on as steps, then zeros. */
static ACI_TARGET_AVX512 inline AC_INLINE __m512i load_steps(const source s, const void *p,
                                                             int64_t n) {
  if (s == STEP_PAIR) return _mm512_maskz_loadu_epi16(mask32(n), p);
  if (s == STEP_BF16)
    return _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask16(n), p)), 16);
  if (s == STEP_F16)
    return _mm512_castps_si512(_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask16(n), p)));
  return _mm512_maskz_loadu_epi32(mask16(n), p);
}

/* Rows contiguous along k. */
static ACI_TARGET_AVX512 inline AC_INLINE void pack_transposed(const source s, uint32_t *dst,
                                                               int width, int w, int64_t kc,
                                                               const char *src, int64_t row_bytes) {
  const int per = s == STEP_PAIR ? 2 : 1; /* values of a step */
  const int64_t steps = (kc + per - 1) / per;
  for (int i0 = 0; i0 < width; i0 += 16) {
    for (int64_t k0 = 0; k0 < steps; k0 += 16) {
      __m512i r[16];
      _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) r[i] =
          i0 + i >= w
              ? _mm512_setzero_si512()
              : load_steps(s, src + (i0 + i) * row_bytes + step_bytes(s) * k0, kc - per * k0);
      transpose16(r);
      int n = steps - k0 < 16 ? (int)(steps - k0) : 16;
      uint32_t *d = dst + k0 * width + i0;
      if (k0 + n < steps) {
        _Pragma("GCC unroll 16") for (int k = 0; k < 16; k++)
            _mm512_storeu_si512(d + k * width, r[k]);
      } else { /* the last row stays within the panel */
        _Alignas(64) uint32_t rows[16][16];
        for (int k = 0; k < 16; k++) _mm512_store_si512(rows[k], r[k]);
        for (int k = 0; k < n - 1; k++)
          _mm512_storeu_si512(d + k * width, _mm512_load_si512(rows[k]));
        _mm512_mask_storeu_epi32(d + (n - 1) * width, mask16(width - i0),
                                 _mm512_load_si512(rows[n - 1]));
      }
    }
  }
}

/* Rows contiguous along the width. */
static ACI_TARGET_AVX512 inline AC_INLINE void pack_across(const source s, uint32_t *dst, int width,
                                                           int w, int64_t kc, const char *src,
                                                           int64_t row_bytes) {
  for (int i0 = 0; i0 < width; i0 += 16) {
    const char *p = src + i0 * step_bytes(s);
    for (int64_t k = 0; k + 1 < kc; k++) {
      ask_ahead(p + k * row_bytes, row_bytes);
      _mm512_storeu_si512(dst + k * width + i0, load_steps(s, p + k * row_bytes, w - i0));
    }
    if (kc > 0) /* the last row stays within the panel */
      _mm512_mask_storeu_epi32(dst + (kc - 1) * width + i0, mask16(width - i0),
                               load_steps(s, p + (kc - 1) * row_bytes, w - i0));
  }
}

/* false: not contiguous in either direction. */
#define PACK_STEPS(NAME, STEP)                                                                 \
  ACI_TARGET_AVX512 static bool NAME(void *dst, int width, int w, int64_t kc, const void *src, \
                                     int64_t ws, int64_t ks) {                                 \
    if (ws == 1) pack_across(STEP, dst, width, w, kc, src, ks *step_bytes(STEP));              \
    else if (ks == 1) pack_transposed(STEP, dst, width, w, kc, src, ws *step_bytes(STEP));     \
    return ws == 1 || ks == 1;                                                                 \
  }
PACK_STEPS(pack_steps_f32, STEP_F32)
PACK_STEPS(pack_steps_bf16, STEP_BF16)
PACK_STEPS(pack_steps_f16, STEP_F16)

ACI_TARGET_AVX512 static void pack_bf16_avx512(uint32_t *dst, int width, int w, int64_t kc,
                                               const uint16_t *src, int64_t ws, int64_t ks) {
  int64_t steps = (kc + 1) / 2;
  if (ks == 1 && ws != 1) {
    pack_transposed(STEP_PAIR, dst, width, w, kc, (const char *)src, ws * 2);
  } else if (ws == 1 && width == 32) {
    const __mmask32 m = mask32(w);
    const __m512i lo = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                        8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i hi = _mm512_add_epi16(lo, _mm512_set1_epi16(16));
    for (int64_t s = 0; s < steps; s++) {
      const uint16_t *p = src + 2 * s * ks;
      __m512i even = _mm512_maskz_loadu_epi16(m, p);
      __m512i odd = 2 * s + 1 < kc ? _mm512_maskz_loadu_epi16(m, p + ks) : _mm512_setzero_si512();
      _mm512_storeu_si512(dst + s * 32, _mm512_permutex2var_epi16(even, lo, odd));
      _mm512_storeu_si512(dst + s * 32 + 16, _mm512_permutex2var_epi16(even, hi, odd));
    }
  } else if (ws == 1) {
    for (int i0 = 0; i0 < width; i0 += 16) {
      __mmask16 m = mask16(w - i0);
      for (int64_t s = 0; s < steps; s++) {
        __mmask16 m1 = 2 * s + 1 < kc ? m : (__mmask16)0;
        __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, src + 2 * s * ks + i0));
        __m512i odd =
            _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m1, src + (2 * s + 1) * ks + i0));
        __m512i both = _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
        if (s + 1 < steps) _mm512_storeu_si512(dst + s * width + i0, both);
        else
          _mm512_mask_storeu_epi32(dst + s * width + i0, mask16(width - i0),
                                   both); /* stays within the panel */
      }
    }
  } else {
    for (int64_t s = 0; s < steps; s++)
      for (int i = 0; i < width; i++) {
        const uint16_t *p = src + i * ws + 2 * s * ks;
        dst[s * width + i] = i >= w ? 0u : p[0] | (2 * s + 1 < kc ? (uint32_t)p[ks] << 16 : 0u);
      }
  }
}
#endif

#if !defined(__x86_64__)
/* Pairs of 16-bit values along k. */
static void pack_pairs(uint32_t *dst, int width, int w, int64_t kc, const uint16_t *src, int64_t ws,
                       int64_t ks) {
  const int64_t steps = (kc + 1) / 2, whole = kc / 2;
  if (w < width) memset(dst, 0, (size_t)(width * steps) * sizeof *dst);
  if (ws == 1) {
    for (int64_t s = 0; s < whole; s++) {
      const uint16_t *restrict even = src + 2 * s * ks, *restrict odd = even + ks;
      ask_ahead(even, 2 * ks), ask_ahead(odd, 2 * ks);
      for (int i = 0; i < w; i++) dst[s * width + i] = even[i] | (uint32_t)odd[i] << 16;
    }
  } else {
    for (int64_t s0 = 0; s0 < whole; s0 += 16) /* blocks, so that lines stay in L1 */
      for (int i = 0; i < w; i++)
        for (int64_t s = s0; s < whole && s < s0 + 16; s++) {
          const uint16_t *p = src + i * ws + 2 * s * ks;
          dst[s * width + i] = p[0] | (uint32_t)p[ks] << 16;
        }
  }
  if (whole < steps)
    for (int i = 0; i < w; i++) dst[whole * width + i] = src[i * ws + (kc - 1) * ks];
}
#endif

static void pack_f32(float *dst, int width, int w, int64_t kc, const float *src, int64_t ws,
                     int64_t ks) {
#if defined(__x86_64__)
  if (aci_cpu_isa() == ACI_ISA_AVX512) {
    if (!pack_steps_f32(dst, width, w, kc, src, ws, ks))
      pack_plain32_avx512(dst, width, w, kc, src, ws, ks);
    return;
  }
#endif
  pack_plain32(dst, width, w, kc, src, ws, ks);
}

/* ---- 16-bit floats to f32 ---- */
AC_ISA_FN(widen_bf16, (float *restrict y, const uint16_t *restrict x, int64_t n), (y, x, n)) {
  for (int64_t i = 0; i < n; i++) y[i] = aci_bf16_to_f32(x[i]);
}
AC_ISA_FN(widen_f16, (float *restrict y, const uint16_t *restrict x, int64_t n), (y, x, n)) {
  int64_t i = 0;
#if defined(__aarch64__)
  for (; i + 4 <= n; i += 4) vst1q_f32(y + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x + i))));
#endif
  for (; i < n; i++) y[i] = aci_f16_to_f32(x[i]);
}

void aci_gemm_widen(aci_gemm_type type, float *dst, const void *src, int64_t n) {
  (type == ACI_GEMM_BF16 ? widen_bf16 : widen_f16)(dst, src, n);
}

/* Through a block of f32 on the stack in the orientation of the source, unless one instruction
 * widens 16 values. */
static void pack_widened(aci_gemm_type type, float *dst, int width, int w, int64_t kc,
                         const uint16_t *src, int64_t ws, int64_t ks) {
#if defined(__x86_64__)
  if (aci_cpu_isa() == ACI_ISA_AVX512 &&
      (type == ACI_GEMM_BF16 ? pack_steps_bf16 : pack_steps_f16)(dst, width, w, kc, src, ws, ks))
    return;
#endif
  _Alignas(64) float tmp[ACI_GEMM_NR_MAX * TMP_K];
  void (*widen)(float *restrict, const uint16_t *restrict, int64_t) =
      type == ACI_GEMM_BF16 ? widen_bf16 : widen_f16;
  for (int64_t k0 = 0; k0 < kc; k0 += TMP_K) {
    int64_t kn = kc - k0 < TMP_K ? kc - k0 : TMP_K;
    const uint16_t *s = src + k0 * ks;
    if (ws == 1) {
      for (int64_t k = 0; k < kn; k++) widen(tmp + k * w, s + k * ks, w);
      pack_f32(dst + k0 * width, width, w, kn, tmp, 1, w);
    } else {
      for (int i = 0; i < w; i++) {
        if (ks == 1) {
          widen(tmp + i * TMP_K, s + i * ws, kn);
        } else {
          for (int64_t k = 0; k < kn; k++) {
            uint16_t h = s[i * ws + k * ks];
            tmp[i * TMP_K + k] = type == ACI_GEMM_BF16 ? aci_bf16_to_f32(h) : aci_f16_to_f32(h);
          }
        }
      }
      pack_f32(dst + k0 * width, width, w, kn, tmp, TMP_K, 1);
    }
  }
}

static void pack_panel(const aci_gemm_kernel *kn, aci_gemm_type type, void *d, int width, int w,
                       int64_t kc, const void *s, int64_t ws, int64_t ks) {
  if (type == ACI_GEMM_F64) pack_plain64(d, width, w, kc, s, ws, ks);
  else if (type == ACI_GEMM_F32) pack_f32(d, width, w, kc, s, ws, ks);
#if defined(__x86_64__)
  else if (kn->pack == ACI_PACK_BF16) pack_bf16_avx512(d, width, w, kc, s, ws, ks);
#else
  else if (kn->pack == ACI_PACK_BF16) pack_pairs(d, width, w, kc, s, ws, ks);
#endif
  else pack_widened(type, d, width, w, kc, s, ws, ks);
}

void aci_gemm_pack(const aci_gemm_kernel *kn, aci_gemm_type type, void *dst, int width,
                   bool half_tail, int64_t w, int64_t kc, const void *src, int64_t ws, int64_t ks) {
  int64_t in_bytes = aci_gemm_type_bytes(type), kp = (kc + kn->pair - 1) / kn->pair * kn->pair;
  /* Sources contiguous along the width: some rows at a time for all panels, so that the lines
   * panels share are still in L1. Fewer rows if the stride maps rows to few of its sets. */
  const int64_t stride = ks * in_bytes, some = stride % 4096 == 0   ? BLOCK_K
                                               : stride % 2048 == 0 ? 2 * BLOCK_K
                                                                    : 4 * BLOCK_K;
  const int64_t block = ws == 1 && w > width ? some : kp;
  for (int64_t k0 = 0; k0 < kc; k0 += block) {
    int64_t k1 = k0 + block < kc ? k0 + block : kc;
    for (int64_t i = 0; i < w; i += width) {
      int rows = w - i < width ? (int)(w - i) : width;
      int wide = half_tail && rows <= width / 2 ? width / 2 : width;
      pack_panel(kn, type, (char *)dst + (i * kp + k0 * wide) * kn->bytes, wide, rows, k1 - k0,
                 (const char *)src + (i * ws + k0 * ks) * in_bytes, ws, ks);
    }
  }
}

/* ---- f32 rounded to bf16 on the way ---- */
AC_ISA_FN(round_bf16, (void *restrict y, const float *restrict x, int64_t n), (y, x, n)) {
  uint16_t *to = y;
  for (int64_t i = 0; i < n; i++) to[i] = aci_f32_to_bf16(x[i]);
}
AC_ISA_FN(round_f32, (void *restrict y, const float *restrict x, int64_t n), (y, x, n)) {
  float *to = y;
  for (int64_t i = 0; i < n; i++) to[i] = aci_bf16_to_f32(aci_f32_to_bf16(x[i]));
}

/* Through a block that stays in L1, of the micro-kernel's type and the orientation of the
 * source. */
void aci_gemm_pack_rounded(const aci_gemm_kernel *kn, void *dst, int width, bool half_tail,
                           int64_t w, int64_t kc, const float *src, int64_t ws, int64_t ks) {
  enum { LINE = 16 };
  _Alignas(64) float block[ROUND_K * ROUND_W];
  const bool across = ws == 1, narrow = kn->pack == ACI_PACK_BF16;
  void (*round)(void *restrict, const float *restrict, int64_t) = narrow ? round_bf16 : round_f32;
  const aci_gemm_type type = narrow ? ACI_GEMM_BF16 : ACI_GEMM_F32;
  const int64_t kp = (kc + kn->pair - 1) / kn->pair * kn->pair, bytes = narrow ? 2 : 4;
  const int64_t block_w = across ? ROUND_W / width * width : width,
                block_k = across ? ROUND_K : ROUND_W;
  /* from row to row of the block, and within one */
  const int64_t next = across ? ks : ws, step = across ? 1 : ks;
  for (int64_t i0 = 0; i0 < w; i0 += block_w) {
    const int64_t n = aci_gemm_min(block_w, w - i0);
    for (int64_t k0 = 0; k0 < kc; k0 += block_k) {
      const int64_t len = aci_gemm_min(block_k, kc - k0), rows = across ? len : n,
                    run = across ? n : len;
      for (int64_t r = 0; r < rows; r++) {
        const float *s = src + i0 * ws + k0 * ks + r * next;
        char *to = (char *)block + r * ROUND_W * bytes;
        if (step == 1) {
          for (int64_t i = 0; i < run; i += LINE) ask_ahead(s + i, next * (int64_t)sizeof *s);
          round(to, s, run);
        } else {
          for (int64_t i = 0; i < run; i++) round(to + i * bytes, s + i * step, 1);
        }
      }
      for (int64_t i = 0; i < n; i += width) {
        const int some = (int)aci_gemm_min(width, n - i),
                  wide = half_tail && some <= width / 2 ? width / 2 : width;
        pack_panel(kn, type, (char *)dst + ((i0 + i) * kp + k0 * wide) * kn->bytes, wide, some, len,
                   (const char *)block + i * (across ? 1 : ROUND_W) * bytes, across ? 1 : ROUND_W,
                   across ? ROUND_W : 1);
      }
    }
  }
}

/* ---- from accumulators to C ---- */
#define FINISH(NAME, T, ACC, GET, PUT)                                                          \
  AC_ISA_FN(NAME,                                                                               \
            (T *restrict c, int64_t ldc, const ACC *restrict acc, int64_t ldacc, int rows,      \
             int cols, ACC alpha, ACC beta, const ACC *restrict bias),                          \
            (c, ldc, acc, ldacc, rows, cols, alpha, beta, bias)) {                              \
    for (int i = 0; i < rows; i++, c += ldc, acc += ldacc) {                                    \
      if (bias == NULL && beta == 0) {                                                          \
        for (int j = 0; j < cols; j++) c[j] = PUT(alpha * acc[j]);                              \
      } else if (beta == 0) {                                                                   \
        for (int j = 0; j < cols; j++) c[j] = PUT(alpha * acc[j] + bias[j]);                    \
      } else if (bias == NULL) {                                                                \
        for (int j = 0; j < cols; j++) c[j] = PUT(alpha * acc[j] + beta * GET(c[j]));           \
      } else {                                                                                  \
        for (int j = 0; j < cols; j++) c[j] = PUT(alpha * acc[j] + beta * GET(c[j]) + bias[j]); \
      }                                                                                         \
    }                                                                                           \
  }
#define SAME(x) (x)
FINISH(finish_f64, double, double, SAME, SAME)
FINISH(finish_f32, float, float, SAME, SAME)
FINISH(finish_bf16, uint16_t, float, aci_bf16_to_f32, aci_f32_to_bf16)
FINISH(finish_f16, uint16_t, float, aci_f16_to_f32, aci_f32_to_f16)

#if defined(__x86_64__)
/* With the instruction, which makes denormals zero like the products that got here. */
ACI_TARGET_AVX512_BF16 static void finish_bf16_by_instruction(uint16_t *c, int64_t ldc,
                                                              const float *acc, int64_t ldacc,
                                                              int rows, int cols, float alpha,
                                                              const float *bias) {
  __m512 by = _mm512_set1_ps(alpha);
  for (int j = 0; j < cols; j += 16) {
    __mmask16 m = mask16(cols - j);
    __m512 add = bias == NULL ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(m, bias + j);
    for (int i = 0; i < rows; i++) {
      __m512 x = _mm512_mul_ps(by, _mm512_maskz_loadu_ps(m, acc + i * ldacc + j));
      if (bias != NULL) x = _mm512_add_ps(x, add);
      __m256i y = (__m256i)_mm512_cvtneps_pbh(x);
      if (m == 0xffff) _mm256_storeu_si256((__m256i *)(void *)(c + i * ldc + j), y);
      else _mm256_mask_storeu_epi16(c + i * ldc + j, m, y);
    }
  }
}
#endif

void aci_gemm_finish(const aci_gemm_out *o, int rows, int cols, const void *acc, int64_t ldacc,
                     void *c, int64_t ldc, int64_t j0) {
  const float *bias = o->bias == NULL ? NULL : (const float *)o->bias + j0;
  float alpha = (float)o->alpha, beta = (float)o->beta;
  switch (o->type) {
    case ACI_GEMM_F64: {
      const double *bias64 = o->bias == NULL ? NULL : (const double *)o->bias + j0;
      finish_f64(c, ldc, acc, ldacc, rows, cols, o->alpha, o->beta, bias64);
      break;
    }
    case ACI_GEMM_F32: finish_f32(c, ldc, acc, ldacc, rows, cols, alpha, beta, bias); break;
    case ACI_GEMM_BF16:
#if defined(__x86_64__)
      if (beta == 0 && aci_gemm_kernel_for(ACI_GEMM_BF16)->pair == 2) {
        finish_bf16_by_instruction(c, ldc, acc, ldacc, rows, cols, alpha, bias);
        break;
      }
#endif
      finish_bf16(c, ldc, acc, ldacc, rows, cols, alpha, beta, bias);
      break;
    case ACI_GEMM_F16: finish_f16(c, ldc, acc, ldacc, rows, cols, alpha, beta, bias); break;
    default: break;
  }
}
