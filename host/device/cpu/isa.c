/* Which of our function clones this CPU runs. Called by every kernel (isa.h). */
#include "device/cpu/isa.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/arm.h"
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

const char *aci_cpu_isa_name(int isa) {
  static const char *const name[] = {"base", "avx2", "avx512", "neon"};
  return name[isa];
}

static int detect(void) {
  int isa = ACI_ISA_BASE;
#if defined(__x86_64__)
  unsigned a, b, c, d;
  __builtin_cpu_init();
  /* f16c by cpuid: compilers differ in whether __builtin_cpu_supports knows it. The builtin also
   * checks that the kernel saves the wide registers. */
  bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  if (f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2")) {
    isa = ACI_ISA_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      isa = ACI_ISA_AVX512;
  }
#elif defined(__aarch64__)
  isa = ACI_ISA_NEON;
#endif
  const char *want =
      /* read here: kernels may run before any context. params.c checks the value */
      getenv("ACCEL_CPU_ISA");
  if (want != NULL) {
    if (strcmp(want, "base") == 0) isa = ACI_ISA_BASE;
    else if (strcmp(want, "avx2") == 0 && isa == ACI_ISA_AVX512) isa = ACI_ISA_AVX2;
  }
  return isa;
}

int aci_cpu_isa(void) {
  static _Atomic int cached = -1;
  int isa = atomic_load_explicit(&cached, memory_order_relaxed);
  if (__builtin_expect(isa < 0, 0)) {
    isa = detect();
    /* racing threads store the same value */
    atomic_store_explicit(&cached, isa, memory_order_relaxed);
  }
  return isa;
}

int aci_cpu_arm(void) {
  static _Atomic int cached = -1;
  int has = atomic_load_explicit(&cached, memory_order_relaxed);
  if (__builtin_expect(has >= 0, 1)) return has;
  has = 0;
#if defined(__aarch64__)
  if (aci_cpu_isa() == ACI_ISA_NEON) {
    const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    if (first & HWCAP_ASIMDDP) has |= ACI_ARM_DOT;
    if (second & HWCAP2_I8MM) has |= ACI_ARM_I8MM;
    if (second & HWCAP2_BF16) has |= ACI_ARM_BF16;
  }
#endif
  atomic_store_explicit(&cached, has, memory_order_relaxed);
  return has;
}
