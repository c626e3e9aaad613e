/* Function multiversioning: one body, compiled for AVX-512, AVX2 and baseline, chosen once per
 * process. The baseline of 64-bit Arm is NEON, so one body is enough there (arm.h has the rest).
 *
 *   AC_ISA_FN(scale, (float *y, int64_t n, float a), (y, n, a)) { for (...) y[i] *= a; }
 *
 * defines `static void scale(float *y, int64_t n, float a)` (results go through pointers). The body
 * is inlined into one clone per ISA, so helpers called from it must be `static inline AC_INLINE`.
 * ifuncs are not used: their resolvers run before sanitizers are ready. */
#ifndef ACI_CPU_ISA_H
#define ACI_CPU_ISA_H

#include "base/hostdev.h"

#define AC_INLINE AC_HOSTDEV __attribute__((always_inline))

enum { ACI_ISA_BASE = 0, ACI_ISA_AVX2 = 1, ACI_ISA_AVX512 = 2 };
/* The instruction set of this CPU, lowered by ACCEL_CPU_ISA=base|avx2|avx512|neon. Constant for the
 * life of the process. */
int aci_cpu_isa(void);

#if defined(__x86_64__) && !defined(__CUDACC__)
#define ACI_TARGET_AVX2 __attribute__((target("avx2,fma,f16c,bmi2")))
#if defined(__clang__) /* it would drop the whole attribute over the width */
#define ACI_TARGET_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")))
#else
#define ACI_TARGET_AVX512 \
  __attribute__((         \
      target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2,prefer-vector-width=512")))
#endif
#define AC_ISA_FN(name, params, args) AC_ISA_FN_(name, params, args) /* replaces name first */
#define AC_ISA_FN_(name, params, args)                                                           \
  static inline AC_INLINE void name##_body params;                                               \
  ACI_TARGET_AVX512 static __attribute__((noinline)) void name##_avx512 params {                 \
    name##_body args;                                                                            \
  }                                                                                              \
  ACI_TARGET_AVX2 static __attribute__((noinline)) void name##_avx2 params { name##_body args; } \
  static __attribute__((noinline)) void name##_base params { name##_body args; }                 \
  static inline __attribute__((unused)) void name params {                                       \
    switch (aci_cpu_isa()) {                                                                     \
      case ACI_ISA_AVX512: name##_avx512 args; break;                                            \
      case ACI_ISA_AVX2: name##_avx2 args; break;                                                \
      default: name##_base args;                                                                 \
    }                                                                                            \
  }                                                                                              \
  static inline AC_INLINE void name##_body params
#else
#define AC_ISA_FN(name, params, args) static void name params
#endif

#endif
