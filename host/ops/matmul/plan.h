/* A (batched) matrix product laid out, for the drivers of the CPU (product.c) and of device
 * modules. */
#ifndef ACI_OPS_MATMUL_PLAN_H
#define ACI_OPS_MATMUL_PLAN_H
#include "accel/tensor.h"

/* Operations on C before it is written. Only device modules do these. They return UNSUPPORTED,
 * without a message, if they cannot. */
typedef enum aci_epilogue {
  ACI_EPILOGUE_NONE,
  ACI_EPILOGUE_RELU, /* C := max(C, 0) */
  ACI_EPILOGUE_GELU, /* aux := C (NULL: not kept), C := gelu of it in the tanh form */
  /* C := C times the slope of that gelu at aux. sums (NULL: none) := of C over its rows */
  ACI_EPILOGUE_GELU_GRADIENT
} aci_epilogue;

/* C[b, i, j] = alpha * sum over k of A[b, i, k] B[b, k, j] + beta * C[b, i, j] + bias[j]. C is
 * contiguous (batch..., m, n). Strides are in elements. A batch stride of 0 repeats the operand. */
typedef struct aci_product {
  ac_dtype dtype;
  int n_batch_dims;
  int64_t batch[AC_MAX_DIMS];
  int64_t m, n, k;
  const void *a, *b;
  void *c;
  int64_t a_batch[AC_MAX_DIMS], a_rs, a_cs;
  int64_t b_batch[AC_MAX_DIMS], b_rs, b_cs;
  const void *bias; /* n values, contiguous, or NULL */
  ac_dtype bias_dtype;
  double alpha, beta;
  bool wide;    /* C is f32 though the operands are bf16 or f16 */
  bool round_b; /* B is f32 and is rounded to dtype (BF16) as it is read. Only the CPU does this */
  aci_epilogue epilogue;
  void *aux;  /* (m, n) like C, no batch */
  void *sums; /* n values of C's dtype */
  /* Operands of 8 bits, each under one scale in the device's memory: C := (A a_scale) (B b_scale) +
   * bias, of dtype. Without batch, alpha 1, beta 0. cuBLASLt alone takes them. NULL: there are
   * none. */
  const float *a_scale, *b_scale;
  ac_dtype a_f8, b_f8;
} aci_product;

#endif
