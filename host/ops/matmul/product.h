/* One description of a (batched) matrix product over strided operands, and its way to the CPU's
 * gemm. Used by matmul, linear, addmm and attention's plain path.
 *
 * Map of the folder. One op, one file of its name: matmul mm mv bmm dot outer linear addmm baddbmm
 * mlp einsum multi_dot cdist mixed_product. Shared files:
 *
 *   product.[ch], plan.h    a batched product of strided operands, for the CPU and for device
 *                           modules
 *   check.h                 checks of the fixed-rank ops on their operands
 *   product.cu, product.cuh the product on CUDA: tiles of our own, or cuBLASLt by product_lt.cu
 *   (lt.h declares it, lt_check.cu
 *                           compares it with the toolkit's header)
 *
 * The CPU's kernels of products are in device/cpu (gemm*.c). */
#ifndef ACI_OPS_PRODUCT_H
#define ACI_OPS_PRODUCT_H
#include "device/cpu/gemm.h"
#include "ops/matmul/plan.h"
#include "ops/core/op.h"

/* Adjacent rows of A become one large product when B is shared. */
ac_status aci_product_run(ac_frame *f, aci_product *p, ac_err *e);
/* *p := rows of x (..., k) times weight^T, weight (n, k), or times weight, (k, n), if it is
 * transposed. C is to be set. */
void aci_product_rows(aci_product *p, const ac_tensor *x, const ac_tensor *weight, bool transposed);
/* The gemm's name of a dtype. False if there are no products of it. */
bool aci_product_type(ac_dtype d, aci_gemm_type *out);
/* Whether products on this device take a weight of f32 with bf16 operands (op desc .weights): not
 * if other libraries multiply. */
bool aci_product_rounds(const ac_ctx *c, const ac_device *d);
/* a b for gradients: matmul, or mixed_product if b is such a weight or the result is its gradient,
 * in f32. */
ac_tensor *aci_product_as(ac_expr *x, ac_tensor *a, ac_tensor *b, ac_dtype result);
/* All rows of t (..., n) as one matrix. */
ac_tensor *aci_product_flat(ac_expr *x, ac_tensor *t);
/* DTYPE unless matrix products exist for the dtype of argument a and arguments a..b have the same,
 * but for weights to round. */
ac_status aci_product_dtypes(const ac_frame *f, int a, int b, ac_err *e);
/* "SHAPE: matrix of shape (2, 3) times (4, 5): 3 and 4 must be equal". */
ac_status aci_product_mismatch(const ac_tensor *x, const ac_tensor *y, int64_t kx, int64_t ky,
                               ac_err *e);

#endif
