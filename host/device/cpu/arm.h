/* Kernels of 64-bit Arm. NEON is in the baseline of that architecture, so the compiler makes it of
 * every loop, and the clones of isa.h are not needed. What it does not find has a part of its own:
 * micro-kernels of the matrix product with fma (gemm_kernel.c), products of few rows (gemm_few.c),
 * lookups of 4-bit codes (ops/quant/neon.h), dot products of bf16 and int8. ACCEL_CPU_ISA=base turns
 * these off. */
#ifndef ACI_CPU_ARM_H
#define ACI_CPU_ARM_H

enum { ACI_ISA_NEON = 3 }; /* beside those of isa.h */
const char *aci_cpu_isa_name(int isa);

/* Extensions for which some kernels have a version. None if the instruction set is lowered. */
enum {
  ACI_ARM_DOT = 1,  /* sums of four products of int8: SDOT */
  ACI_ARM_I8MM = 2, /* products of 2 x 8 int8: SMMLA */
  ACI_ARM_BF16 = 4, /* sums of two products of bf16: BFDOT */
};
int aci_cpu_arm(void);

#define ACI_TARGET_DOT __attribute__((target("arch=armv8.2-a+dotprod")))
#define ACI_TARGET_I8MM __attribute__((target("arch=armv8.2-a+i8mm")))
#define ACI_TARGET_ARM_BF16 __attribute__((target("arch=armv8.2-a+bf16")))

#endif
