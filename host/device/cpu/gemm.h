/* Matrix products on the CPU: C[b] = alpha * A[b] B[b] + beta * C[b] + bias, for every storage
 * dtype of the ops.
 *
 * Called by host/ops/matmul and by attention. A and B may be transposed views: element (i,k) of A
 * lies at a + i*a_rs + k*a_cs (in elements), (k,j) of B at b + k*b_rs + j*b_cs. C is row-major with
 * row stride c_rs and unit column stride. Numbers: f16/bf16/f32 accumulate in f32
 * (ACCEL_F32_SPLIT=1: large products of f32 as six of bf16, see gemm_split.c), f64 in f64, integers
 * in i64. How an element is added up follows from the shape alone: bits do not depend on the number
 * of threads. k = 0 gives beta*C + bias. */
#ifndef ACI_CPU_GEMM_H
#define ACI_CPU_GEMM_H
#include <stdbool.h>

#include "accel/base.h"

typedef enum aci_gemm_type {
  ACI_GEMM_F64,
  ACI_GEMM_F32,
  ACI_GEMM_BF16,
  ACI_GEMM_F16,
  ACI_GEMM_I64,
  ACI_GEMM_I32,
  ACI_GEMM_I16,
  ACI_GEMM_I8,
  ACI_GEMM_U8
} aci_gemm_type;

typedef struct aci_gemm {
  /* A and B share one. out is the same type, or F32 for 16-bit inputs */
  aci_gemm_type in_type, out_type;
  int64_t m, n, k;
  int64_t a_rs, a_cs, b_rs, b_cs, c_rs;
  int64_t n_batch;                 /* >= 1. Pointers below have n_batch entries */
  const void *const *a, *const *b; /* repeated pointers broadcast */
  void *const *c;                  /* distinct outputs */
  const void *bias;                /* (n) of bias_type, or NULL */
  aci_gemm_type bias_type;         /* F32, F64, BF16 or F16 */
  double alpha, beta;              /* beta == 0 never reads C */
  /* B is f32 and becomes in_type, BF16, as it is read: no copy of it is needed */
  bool round_b;
} aci_gemm;

/* team may be NULL. OOM without memory for scratch. UNSUPPORTED for a pair of types that is not
 * listed above. */
ac_status aci_cpu_gemm(ac_team *team, const aci_gemm *g, ac_err *e);

/* Which path a product of these shapes asks for ("onednn", "split", "small", "reference"), for the
 * profiler and tests. */
const char *aci_cpu_gemm_path(const aci_gemm *g);

#endif
