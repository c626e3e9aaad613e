/* Micro-kernels of the matrix product: a tile of C held in registers while k runs over two packed
 * panels. Called through aci_gemm_kernel_for by gemm.c and by the attention kernels.
 *
 * One body per instruction set, instantiated for a few row counts so that a short last panel does
 * not cost a full one: AVX-512 14 x 32 f32 (28 accumulators), AVX2 6 x 16, NEON 12 x 8, baseline 4 x
 * 8, and half of these columns in f64. The chain of fma of an element is the same in all of them
 * except the baseline, which has no fma instruction and rounds twice.
 *
 * Panels come from L2 or further, and the CPU's own prefetching ends with each page. AVX-512
 * kernels have slots to spare next to their multiply-adds, so they prefetch the lines of some steps
 * ahead, and C if they add to it. */
#include "device/cpu/gemm_impl.h"

#include <string.h>

#include "device/cpu/arm.h"
#include "device/cpu/isa.h"
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

enum { AHEAD_A = 512, AHEAD_B = 1024, LINE = 64 }; /* bytes */
#define AHEAD(p, bytes) __builtin_prefetch((const void *)((uintptr_t)(p) + (bytes)))

/* rows as rounded by aci_gemm_rows. */
#define RUN(NAME, T, U, R, MR, NV) \
  NAME##_body(R, NV, kc, a, sizeof(T), MR *(int64_t)sizeof(T), (const T *)b, (U *)c, ldc, add)
#define ROWS_14(NAME, T, U, NV)                  \
  switch (rows) {                                \
    case 1: RUN(NAME, T, U, 1, 14, NV); break;   \
    case 2: RUN(NAME, T, U, 2, 14, NV); break;   \
    case 4: RUN(NAME, T, U, 4, 14, NV); break;   \
    case 8: RUN(NAME, T, U, 8, 14, NV); break;   \
    default: RUN(NAME, T, U, 14, 14, NV); break; \
  }
#define ROWS_12(NAME, T, U, NV)                  \
  switch (rows) {                                \
    case 1: RUN(NAME, T, U, 1, 12, NV); break;   \
    case 2: RUN(NAME, T, U, 2, 12, NV); break;   \
    case 4: RUN(NAME, T, U, 4, 12, NV); break;   \
    case 8: RUN(NAME, T, U, 8, 12, NV); break;   \
    default: RUN(NAME, T, U, 12, 12, NV); break; \
  }
#define ROWS_6(NAME, T, U, NV)                 \
  switch (rows) {                              \
    case 1: RUN(NAME, T, U, 1, 6, NV); break;  \
    case 2: RUN(NAME, T, U, 2, 6, NV); break;  \
    case 4: RUN(NAME, T, U, 4, 6, NV); break;  \
    default: RUN(NAME, T, U, 6, 6, NV); break; \
  }
#define ROWS_4(NAME, T, U, NV)                 \
  switch (rows) {                              \
    case 1: RUN(NAME, T, U, 1, 4, NV); break;  \
    case 2: RUN(NAME, T, U, 2, 4, NV); break;  \
    default: RUN(NAME, T, U, 4, 4, NV); break; \
  }
#define ENTRY(NAME, TARGET, T, U, L, MR)                                                         \
  TARGET static void NAME(int rows, int cols, int64_t kc, const void *a, const void *b, void *c, \
                          int64_t ldc, bool add) {                                               \
    if (cols > L) ROWS_##MR(NAME, T, U, 2) else ROWS_##MR(NAME, T, U, 1)                         \
  }                                                                                              \
  TARGET static void NAME##_rows(int cols, int64_t kc, const void *a, int64_t row_bytes,         \
                                 const void *b, void *c, int64_t ldc, bool add) {                \
    const T *panel = b;                                                                          \
    if (cols > L) NAME##_body(MR, 2, kc, a, row_bytes, sizeof(T), panel, (U *)c, ldc, add);      \
    else NAME##_body(MR, 1, kc, a, row_bytes, sizeof(T), panel, (U *)c, ldc, add);               \
  }                                                                                              \
  TARGET static void NAME##_across(int cols, int64_t kc, const void *a, int64_t step_bytes,      \
                                   const void *b, void *c, int64_t ldc, bool add) {              \
    const T *panel = b;                                                                          \
    if (cols > L) NAME##_body(MR, 2, kc, a, sizeof(T), step_bytes, panel, (U *)c, ldc, add);     \
    else NAME##_body(MR, 1, kc, a, sizeof(T), step_bytes, panel, (U *)c, ldc, add);              \
  }

/* A pair of bf16 in a row that lies is aligned as its values are. */
static inline AC_INLINE __attribute__((unused)) uint32_t pair_at(const void *p) {
  uint32_t v;
  memcpy(&v, p, sizeof v);
  return v;
}

/* ---- baseline: 16-byte vectors of the compiler ---- */
#define NO_TARGET
typedef float v4f __attribute__((vector_size(16), aligned(4), may_alias));
typedef double v2d __attribute__((vector_size(16), aligned(8), may_alias));
#define V4_ZERO() ((v4f){0, 0, 0, 0})
#define V4_LOAD(p) (*(const v4f *)(p))
#define V4_STORE(p, v) (*(v4f *)(p) = (v))
#define V4_BCAST(p) ((v4f){*(p), *(p), *(p), *(p)})
#define V2_ZERO() ((v2d){0, 0})
#define V2_LOAD(p) (*(const v2d *)(p))
#define V2_STORE(p, v) (*(v2d *)(p) = (v))
#define V2_BCAST(p) ((v2d){*(p), *(p)})
#define V_MADD(c, a, b) ((c) + (a) * (b))
#define V_ADD(a, b) ((a) + (b))
#define NAME f32_base
#define TARGET NO_TARGET
#define T float
#define U float
#define V v4f
#define B v4f
#define L 4
#define ZERO V4_ZERO
#define LOADB V4_LOAD
#define BCAST V4_BCAST
#define MADD V_MADD
#define LOAD V4_LOAD
#define STORE V4_STORE
#define ADD V_ADD
#include "device/cpu/gemm_micro.h"

ENTRY(f32_base, NO_TARGET, float, float, 4, 4)
#define NAME f64_base
#define TARGET NO_TARGET
#define T double
#define U double
#define V v2d
#define B v2d
#define L 2
#define ZERO V2_ZERO
#define LOADB V2_LOAD
#define BCAST V2_BCAST
#define MADD V_MADD
#define LOAD V2_LOAD
#define STORE V2_STORE
#define ADD V_ADD
#include "device/cpu/gemm_micro.h"

ENTRY(f64_base, NO_TARGET, double, double, 2, 4)

#if defined(__x86_64__)
/* ---- AVX2 ---- */
#define Y_BCAST32(p) _mm256_broadcast_ss(p)
#define Y_BCAST64(p) _mm256_broadcast_sd(p)
#define Y_MADD32(c, a, b) _mm256_fmadd_ps(a, b, c)
#define Y_MADD64(c, a, b) _mm256_fmadd_pd(a, b, c)
#define NAME f32_avx2
#define TARGET ACI_TARGET_AVX2
#define T float
#define U float
#define V __m256
#define B __m256
#define L 8
#define ZERO _mm256_setzero_ps
#define LOADB _mm256_loadu_ps
#define BCAST Y_BCAST32
#define MADD Y_MADD32
#define LOAD _mm256_loadu_ps
#define STORE _mm256_storeu_ps
#define ADD _mm256_add_ps
#include "device/cpu/gemm_micro.h"

ENTRY(f32_avx2, ACI_TARGET_AVX2, float, float, 8, 6)
#define NAME f64_avx2
#define TARGET ACI_TARGET_AVX2
#define T double
#define U double
#define V __m256d
#define B __m256d
#define L 4
#define ZERO _mm256_setzero_pd
#define LOADB _mm256_loadu_pd
#define BCAST Y_BCAST64
#define MADD Y_MADD64
#define LOAD _mm256_loadu_pd
#define STORE _mm256_storeu_pd
#define ADD _mm256_add_pd
#include "device/cpu/gemm_micro.h"

ENTRY(f64_avx2, ACI_TARGET_AVX2, double, double, 4, 6)

/* ---- AVX-512 ---- */
#define Z_BCAST32(p) _mm512_set1_ps(*(p))
#define Z_BCAST64(p) _mm512_set1_pd(*(p))
#define Z_MADD32(c, a, b) _mm512_fmadd_ps(a, b, c)
#define Z_MADD64(c, a, b) _mm512_fmadd_pd(a, b, c)
#define NAME f32_avx512
#define TARGET ACI_TARGET_AVX512
#define T float
#define U float
#define V __m512
#define B __m512
#define L 16
#define ZERO _mm512_setzero_ps
#define LOADB _mm512_loadu_ps
#define BCAST Z_BCAST32
#define MADD Z_MADD32
#define LOAD _mm512_loadu_ps
#define STORE _mm512_storeu_ps
#define ADD _mm512_add_ps
#include "device/cpu/gemm_micro.h"

ENTRY(f32_avx512, ACI_TARGET_AVX512, float, float, 16, 14)
#define NAME f64_avx512
#define TARGET ACI_TARGET_AVX512
#define T double
#define U double
#define V __m512d
#define B __m512d
#define L 8
#define ZERO _mm512_setzero_pd
#define LOADB _mm512_loadu_pd
#define BCAST Z_BCAST64
#define MADD Z_MADD64
#define LOAD _mm512_loadu_pd
#define STORE _mm512_storeu_pd
#define ADD _mm512_add_pd
#include "device/cpu/gemm_micro.h"

ENTRY(f64_avx512, ACI_TARGET_AVX512, double, double, 8, 14)

/* ---- AVX-512 with bf16 dot products: one step of k is a pair of values ---- */
#define Z_LOAD_PAIR(p) ((__m512bh)_mm512_loadu_si512(p))
#define Z_BCAST_PAIR(p) ((__m512bh)_mm512_set1_epi32((int)pair_at(p)))
#define NAME bf16_avx512
#define TARGET ACI_TARGET_AVX512_BF16
#define T uint32_t
#define U float
#define V __m512
#define B __m512bh
#define L 16
#define ZERO _mm512_setzero_ps
#define LOADB Z_LOAD_PAIR
#define BCAST Z_BCAST_PAIR
#define MADD _mm512_dpbf16_ps
#define LOAD _mm512_loadu_ps
#define STORE _mm512_storeu_ps
#define ADD _mm512_add_ps
#include "device/cpu/gemm_micro.h"

ENTRY(bf16_avx512, ACI_TARGET_AVX512_BF16, uint32_t, float, 16, 14)
#elif defined(__aarch64__)
/* ---- NEON ---- */
#define N_ZERO32() vdupq_n_f32(0)
#define N_ZERO64() vdupq_n_f64(0)
#define NAME f32_neon
#define TARGET NO_TARGET
#define T float
#define U float
#define V float32x4_t
#define B float32x4_t
#define L 4
#define ZERO N_ZERO32
#define LOADB vld1q_f32
#define BCAST vld1q_dup_f32
#define MADD vfmaq_f32
#define LOAD vld1q_f32
#define STORE vst1q_f32
#define ADD vaddq_f32
#include "device/cpu/gemm_micro.h"

ENTRY(f32_neon, NO_TARGET, float, float, 4, 12)
#define NAME f64_neon
#define TARGET NO_TARGET
#define T double
#define U double
#define V float64x2_t
#define B float64x2_t
#define L 2
#define ZERO N_ZERO64
#define LOADB vld1q_f64
#define BCAST vld1q_dup_f64
#define MADD vfmaq_f64
#define LOAD vld1q_f64
#define STORE vst1q_f64
#define ADD vaddq_f64
#include "device/cpu/gemm_micro.h"

ENTRY(f64_neon, NO_TARGET, double, double, 2, 12)

/* ---- NEON with bf16 dot products: one step of k is a pair of values ---- */
#define N_LOAD_PAIR(p) vreinterpretq_bf16_u32(vld1q_u32(p))
#define N_BCAST_PAIR(p) vreinterpretq_bf16_u32(vdupq_n_u32(pair_at(p)))
#define NAME bf16_neon
#define TARGET ACI_TARGET_ARM_BF16
#define T uint32_t
#define U float
#define V float32x4_t
#define B bfloat16x8_t
#define L 4
#define ZERO N_ZERO32
#define LOADB N_LOAD_PAIR
#define BCAST N_BCAST_PAIR
#define MADD vbfdotq_f32
#define LOAD vld1q_f32
#define STORE vst1q_f32
#define ADD vaddq_f32
#include "device/cpu/gemm_micro.h"

ENTRY(bf16_neon, ACI_TARGET_ARM_BF16, uint32_t, float, 4, 12)
#endif

/* ---- choice ---- */
#define KERNEL(NAME, PACK, MR, NR, PAIR, BYTES) \
  { NAME, NAME##_rows, NAME##_across, PACK, MR, NR, PAIR, BYTES }
/* by instruction set: f32, f64 */
static const aci_gemm_kernel kernels[][2] = {
    [ACI_ISA_BASE] = {KERNEL(f32_base, ACI_PACK_F32, 4, 8, 1, 4),
                      KERNEL(f64_base, ACI_PACK_F64, 4, 4, 1, 8)},
#if defined(__x86_64__)
    [ACI_ISA_AVX2] = {KERNEL(f32_avx2, ACI_PACK_F32, 6, 16, 1, 4),
                      KERNEL(f64_avx2, ACI_PACK_F64, 6, 8, 1, 8)},
    [ACI_ISA_AVX512] = {KERNEL(f32_avx512, ACI_PACK_F32, 14, 32, 1, 4),
                        KERNEL(f64_avx512, ACI_PACK_F64, 14, 16, 1, 8)},
#elif defined(__aarch64__)
    [ACI_ISA_NEON] = {KERNEL(f32_neon, ACI_PACK_F32, 12, 8, 1, 4),
                      KERNEL(f64_neon, ACI_PACK_F64, 12, 4, 1, 8)},
#endif
};

/* The kernel of pairs of bf16, or NULL. */
static const aci_gemm_kernel *of_pairs(void) {
#if defined(__x86_64__)
  static const aci_gemm_kernel k = KERNEL(bf16_avx512, ACI_PACK_BF16, 14, 32, 2, 2);
  return aci_cpu_isa() == ACI_ISA_AVX512 && __builtin_cpu_supports("avx512bf16") ? &k : NULL;
#elif defined(__aarch64__)
  static const aci_gemm_kernel k = KERNEL(bf16_neon, ACI_PACK_BF16, 12, 8, 2, 2);
  return aci_cpu_arm() & ACI_ARM_BF16 ? &k : NULL;
#else
  return NULL;
#endif
}

const aci_gemm_kernel *aci_gemm_kernel_for(aci_gemm_type in) {
  const aci_gemm_kernel *mine = kernels[aci_cpu_isa()], *pairs;
  switch (in) {
    case ACI_GEMM_F64: return &mine[1];
    case ACI_GEMM_BF16: pairs = of_pairs(); return pairs != NULL ? pairs : &mine[0];
    case ACI_GEMM_F32:
    case ACI_GEMM_F16: return &mine[0];
    default: return NULL;
  }
}
