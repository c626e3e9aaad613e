/* Values into codes and back: see codes.h. */
#include "ops/quant/codes.h"

#include <math.h>
#include <pthread.h>

#include "device/cpu/gemm_impl.h"
#include "device/cpu/isa.h"
#include "ops/quant/dot.h"
#include "ops/quant/nonfinite.h"
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include "ops/quant/neon.h"
#endif

enum { STEPS = 65536, PIECE = 512 };

ac_status aci_frame_out_quantized(ac_frame *f, const ac_layout *l, ac_err *e) {
  AC_TRY(ac_layout_check(l, e));
  const int64_t bytes = (int64_t)ac_layout_bytes(l);
  AC_TRY(ac_frame_out(f, AC_U8, 1, &bytes, e));
  return aci_layout_give(f->out[f->n_out - 1], l, e);
}

ac_status aci_quantizable(const ac_tensor *x, ac_err *e) {
  if (x->dtype == AC_F32 || x->dtype == AC_F16 || x->dtype == AC_BF16) return AC_OK;
  return AC_FAIL(e, DTYPE, "f32, f16 and bf16 can be quantised, not %s",
                 ac_dtype_name((ac_dtype)x->dtype));
}

/* ---- 8 bits, dynamic ---- */
static uint8_t nearest[2][STEPS]; /* code of each step of [-1, 1]: signed, unsigned */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_nearest(void) {
  for (int k = 0; k < 2; k++) {
    int n, at = 0;
    const float *map = ac_quant_map(k == 0 ? AC_QUANT_DYNAMIC : AC_QUANT_UDYNAMIC, &n);
    for (int i = 0; i < STEPS; i++) {
      const float v = (float)i * (2.0f / (STEPS - 1)) - 1.0f;
      while (at < n - 1 && v > 0.5f * (map[at] + map[at + 1])) at++;
      nearest[k][i] = (uint8_t)at;
    }
  }
}

AC_ISA_FN(largest, (const float *restrict x, int64_t n, uint32_t *absmax), (x, n, absmax)) {
  uint32_t most = 0;
  for (int64_t i = 0; i < n; i++) {
    const uint32_t u = aci_magnitude_bits(x[i]);
    most = u > most ? u : most;
  }
  *absmax = most;
}

float aci_largest(const float *x, int64_t n) {
  uint32_t bits;
  float most;
  largest(x, n, &bits);
  memcpy(&most, &bits, sizeof most);
  return most;
}

AC_ISA_FN(encode,
          (const float *restrict x, int64_t n, float inverse, const uint8_t *restrict of,
           uint8_t *restrict q),
          (x, n, inverse, of, q)) {
  for (int64_t i = 0; i < n; i++) {
    float v = x[i] * inverse;
    v = v < -1 ? -1 : v > 1 ? 1 : v == v ? v : 0;
    q[i] = of[(int32_t)((v + 1.0f) * ((STEPS - 1) * 0.5f) + 0.5f)];
  }
}

/* The number of the dynamic map that is 0. */
static int code_of_zero(ac_quant_type type) {
  int n, at = 0;
  const float *map = ac_quant_map(type, &n);
  while (map[at] != 0) at++;
  return at;
}

void aci_encode_dynamic(ac_quant_type type, const float *x, int64_t n, uint8_t *q, float *absmax) {
  pthread_once(&once, make_nearest);
  *absmax = aci_largest(x, n);
  if (*absmax == 0 && n > 0) {
    memset(q, 0, (size_t)n);
  } else if (!aci_is_finite(*absmax)) {
    const uint8_t zero = (uint8_t)code_of_zero(type);
    for (int64_t i = 0; i < n; i++) {
      const float sign = aci_infinity_sign(x[i]);
      q[i] = sign > 0 ? 255 : sign < 0 ? 0 : zero;
    }
  } else encode(x, n, 1.0f / *absmax, nearest[type == AC_QUANT_UDYNAMIC], q);
}

AC_ISA_FN(decode,
          (const uint8_t *restrict q, int64_t n, const float *restrict map, float absmax,
           float *restrict y),
          (q, n, map, absmax, y)) {
  for (int64_t i = 0; i < n; i++) y[i] = map[q[i]] * absmax;
}

void aci_decode_dynamic(ac_quant_type type, const uint8_t *q, int64_t n, float absmax, float *y) {
  int size;
  decode(q, n, ac_quant_map(type, &size), absmax, y);
}

/* ---- absmax ---- */
void aci_nest_absmax(ac_tensor *t, const ac_layout *l, const float *absmax) {
  const aci_part codes = aci_layout_part(l, AC_PART_ABSMAX),
                 outer = aci_layout_part(l, AC_PART_NESTED_ABSMAX),
                 offset = aci_layout_part(l, AC_PART_OFFSET);
  float row[ACI_NESTED_BLOCK], *most = aci_part_data(t, &outer);
  uint8_t *q = aci_part_data(t, &codes);
  const float mean = aci_mean_of(absmax, codes.n);
  *(float *)aci_part_data(t, &offset) = mean;
  for (int64_t b = 0; b < outer.n; b++) {
    const int64_t at = b * ACI_NESTED_BLOCK,
                  n = codes.n - at < ACI_NESTED_BLOCK ? codes.n - at : ACI_NESTED_BLOCK;
    for (int64_t i = 0; i < n; i++) row[i] = absmax[at + i] - mean;
    aci_encode_dynamic(AC_QUANT_DYNAMIC, row, n, q + at, &most[b]);
  }
}

AC_ISA_FN(decode_add,
          (const uint8_t *restrict q, int64_t n, const float *restrict map, float most, float mean,
           float *restrict y),
          (q, n, map, most, mean, y)) {
  for (int64_t i = 0; i < n; i++) y[i] = map[q[i]] * most + mean;
}

void aci_absmax_load(const ac_tensor *t, const ac_layout *l, int64_t first, int64_t n,
                     float *absmax) {
  const aci_part part = aci_layout_part(l, AC_PART_ABSMAX);
  if (!l->nested) {
    memcpy(absmax, (const float *)aci_part_data(t, &part) + first, (size_t)n * sizeof *absmax);
    return;
  }
  const aci_part outer = aci_layout_part(l, AC_PART_NESTED_ABSMAX),
                 offset = aci_layout_part(l, AC_PART_OFFSET);
  const uint8_t *q = aci_part_data(t, &part);
  const float *most = aci_part_data(t, &outer), mean = *(const float *)aci_part_data(t, &offset);
  int size;
  const float *map = ac_quant_map(AC_QUANT_DYNAMIC, &size);
  for (int64_t at = first, end = first + n; at < end;) {
    const int64_t block = at / ACI_NESTED_BLOCK, stop = (block + 1) * ACI_NESTED_BLOCK < end
                                                            ? (block + 1) * ACI_NESTED_BLOCK
                                                            : end;
    decode_add(q + at, stop - at, map, most[block], mean, absmax + (at - first));
    at = stop;
  }
}

/* ---- values ---- */
/* Blocks of `pairs` bytes: y[2 i], y[2 i + 1] = map of the high and the low half of q[i], times the
 * block's absmax. */
AC_ISA_FN(decode4_plain,
          (const uint8_t *restrict q, int64_t pairs, const float *restrict map, float absmax,
           float *restrict y),
          (q, pairs, map, absmax, y)) {
  for (int64_t i = 0; i < pairs; i++) {
    y[2 * i] = map[q[i] >> 4] * absmax;
    y[2 * i + 1] = map[q[i] & 15] * absmax;
  }
}

#if defined(__x86_64__)
ACI_TARGET_AVX512 static void decode4_512(const uint8_t *q, int64_t n, int64_t pairs,
                                          const float *map, const float *absmax, float *y) {
  const __m512 values = _mm512_loadu_ps(map);
  const __m512i first = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
  for (int64_t b = 0; b < n; b++) {
    const __m512 table = _mm512_mul_ps(values, _mm512_set1_ps(absmax[b]));
    /* the permutation looks at four bits */
    for (int64_t i = 0; i < pairs; i += 16, q += 16, y += 32) {
      const __m512i code = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)q));
      const __m512 even = _mm512_permutexvar_ps(_mm512_srli_epi32(code, 4), table),
                   odd = _mm512_permutexvar_ps(code, table);
      _mm512_storeu_ps(y, _mm512_permutex2var_ps(even, first, odd));
      _mm512_storeu_ps(y + 16, _mm512_permutex2var_ps(even, second, odd));
    }
  }
}

ACI_TARGET_AVX512_BF16 static void decode4_bf16(const uint8_t *q, int64_t n, int64_t pairs,
                                                const float *map, const float *absmax,
                                                uint16_t *y) {
  const __m512 values = _mm512_loadu_ps(map);
  for (int64_t b = 0; b < n; b++) {
    const __m512 some = _mm512_mul_ps(values, _mm512_set1_ps(absmax[b]));
    /* twice: the permutation looks at five bits */
    __m512i table = (__m512i)_mm512_cvtne2ps_pbh(some, some);
    const __mmask16 denormal =
        _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(some, _mm512_setzero_ps(), _CMP_NEQ_UQ),
                                _mm512_abs_ps(some), _mm512_set1_ps(0x1p-126f), _CMP_LT_OQ);
    if (__builtin_expect(denormal != 0, 0)) { /* which that instruction takes for 0 */
      const __m512i bits = _mm512_castps_si512(some),
                    odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
      const __m256i near = _mm512_cvtepi32_epi16(_mm512_srli_epi32(
          _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7FFF)), 16));
      const __m256i half = _mm256_mask_mov_epi16(_mm512_castsi512_si256(table), denormal, near);
      table = _mm512_inserti64x4(_mm512_castsi256_si512(half), half, 1);
    }
    for (int64_t i = 0; i < pairs; i += 16, q += 16, y += 32) {
      const __m512i code = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)q));
      _mm512_storeu_si512(
          y, _mm512_permutexvar_epi16(
                 _mm512_or_si512(_mm512_srli_epi32(code, 4), _mm512_slli_epi32(code, 16)), table));
    }
  }
}

ACI_TARGET_AVX2 static inline AC_INLINE __m256 of_16(__m256i code, __m256 small,
                                                     /* three bits, then the fourth */
                                                     __m256 large) {
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(small, code),
                          _mm256_permutevar8x32_ps(large, code),
                          _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)));
}

ACI_TARGET_AVX2 static void decode4_256(const uint8_t *q, int64_t n, int64_t pairs,
                                        const float *map, const float *absmax, float *y) {
  for (int64_t b = 0; b < n; b++) {
    const __m256 scale = _mm256_set1_ps(absmax[b]);
    const __m256 small = _mm256_mul_ps(_mm256_loadu_ps(map), scale),
                 large = _mm256_mul_ps(_mm256_loadu_ps(map + 8), scale);
    for (int64_t i = 0; i < pairs; i += 8, q += 8, y += 16) {
      const __m256i code = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)q));
      const __m256 even = of_16(_mm256_srli_epi32(code, 4), small, large),
                   odd = of_16(code, small, large);
      const __m256 low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
      _mm256_storeu_ps(y, _mm256_permute2f128_ps(low, high, 0x20));
      _mm256_storeu_ps(y + 8, _mm256_permute2f128_ps(low, high, 0x31));
    }
  }
}
#elif defined(__aarch64__)
static void decode4_neon(const uint8_t *q, int64_t n, int64_t pairs, const float *map,
                         const float *absmax, float *y) {
  float scaled[16];
  for (int64_t b = 0; b < n; b++) {
    for (int i = 0; i < 16; i++) scaled[i] = map[i] * absmax[b];
    const uint8x16x4_t table = aci_neon_table(scaled);
    for (int64_t i = 0; i < pairs; i += 16, q += 16, y += 32) {
      const uint8x16_t codes = vld1q_u8(q);
      float32x4_t even[4], odd[4];
      aci_neon_lookup(table, vshrq_n_u8(codes, 4), even);
      aci_neon_lookup(table, vandq_u8(codes, vdupq_n_u8(15)), odd);
      for (int v = 0; v < 4; v++) vst2q_f32(y + 8 * v, (float32x4x2_t){{even[v], odd[v]}});
    }
  }
}
#endif

/* n whole blocks. */
static void decode4(const uint8_t *q, int64_t n, int64_t pairs, const float *map,
                    const float *absmax, float *y) {
#if defined(__x86_64__)
  const int isa = aci_cpu_isa();
  if (isa != ACI_ISA_BASE && pairs % 16 == 0) {
    (isa == ACI_ISA_AVX512 ? decode4_512 : decode4_256)(q, n, pairs, map, absmax, y);
    return;
  }
#elif defined(__aarch64__)
  if (aci_cpu_isa() == ACI_ISA_NEON && pairs % 16 == 0) {
    decode4_neon(q, n, pairs, map, absmax, y);
    return;
  }
#endif
  for (int64_t b = 0; b < n; b++)
    decode4_plain(q + b * pairs, pairs, map, absmax[b], y + 2 * b * pairs);
}

bool aci_dequantize_bf16(const ac_tensor *t, const ac_layout *l, int64_t begin, int64_t n,
                         uint16_t *y) {
#if defined(__x86_64__)
  const int64_t size = l->blocksize;
  if (!aci_layout_is_4bit(l) || !aci_dot_4bit_bf16_fits() || size % 32 != 0 || begin % size != 0 ||
      n % size != 0)
    return false;
  const aci_part values = aci_layout_part(l, AC_PART_VALUES);
  const uint8_t *q = (const uint8_t *)aci_part_data(t, &values) + begin / 2;
  float absmax[PIECE];
  int codes;
  const float *map = ac_quant_map(l->type, &codes);
  for (int64_t block = begin / size, end = (begin + n) / size; block < end;) {
    const int64_t some = end - block < PIECE ? end - block : PIECE;
    aci_absmax_load(t, l, block, some, absmax);
    decode4_bf16(q, some, size / 2, map, absmax, y);
    q += some * size / 2;
    y += some * size;
    block += some;
  }
  return true;
#else
  (void)t, (void)l, (void)begin, (void)n, (void)y;
  return false;
#endif
}

/* n values from an element of one block. */
static void load_4bit(const uint8_t *q, const float *map, int64_t begin, int64_t n, float absmax,
                      float *y) {
  if (n > 0 && begin % 2 != 0) {
    *y++ = map[q[begin / 2] & 15] * absmax;
    begin++;
    n--;
  }
  decode4_plain(q + begin / 2, n / 2, map, absmax, y);
  if (n % 2 != 0) y[n - 1] = map[q[(begin + n - 1) / 2] >> 4] * absmax;
}

AC_ISA_FN(scale8, (const int8_t *restrict q, int64_t n, float scale, float *restrict y),
          (q, n, scale, y)) {
  for (int64_t i = 0; i < n; i++) y[i] = (float)q[i] * scale;
}

void aci_dequantize_load(const ac_tensor *t, const ac_layout *l, int64_t begin, int64_t n,
                         float *y) {
  const aci_part values = aci_layout_part(l, AC_PART_VALUES);
  const void *q = aci_part_data(t, &values);
  const int64_t end = begin + n;
  float absmax[PIECE];
  int size;
  const float *map = ac_quant_map(l->type, &size);
  for (int64_t at = begin; at < end;) {
    const int64_t block = at / l->blocksize, last = (end - 1) / l->blocksize;
    const int64_t blocks = last - block + 1 < PIECE ? last - block + 1 : PIECE;
    aci_absmax_load(t, l, block, blocks, absmax);
    int64_t first = block;
    if (aci_layout_is_4bit(l) && at % l->blocksize == 0) { /* whole blocks at once */
      const int64_t whole = (end - at) / l->blocksize < blocks ? (end - at) / l->blocksize : blocks;
      decode4((const uint8_t *)q + at / 2, whole, l->blocksize / 2, map, absmax, y);
      first += whole;
      at += whole * l->blocksize;
      y += whole * l->blocksize;
    }
    for (int64_t b = first; b < block + blocks; b++) {
      const int64_t stop = (b + 1) * l->blocksize < end ? (b + 1) * l->blocksize : end,
                    m = stop - at;
      const float most = absmax[b - block];
      if (aci_layout_is_4bit(l)) load_4bit(q, map, at, m, most, y);
      else if (l->type == AC_QUANT_INT8) scale8((const int8_t *)q + at, m, most * (1.0f / 127), y);
      else decode((const uint8_t *)q + at, m, map, most, y);
      y += m;
      at = stop;
    }
  }
}
