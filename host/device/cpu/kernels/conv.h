/* Convolutions with up to three spatial dims, and their two adjoints, over contiguous (batch,
 * channels, space...) memory. Called by host/ops/conv.
 *
 * y[n, g, o, q] = bias[g, o] + sum over c and t of w[g, o, c, t] * x[n, g, c, q * stride - pad + t
 * * dil], x being 0 outside. Numbers: f32, bf16 and f16 accumulate in f32 and round once (bf16
 * multiplies as bf16 where the CPU has instructions for that), f64 in f64. Work is cut by shape.
 * Bits do not depend on the number of threads. Large 3 x 3 convolutions of f32, and of 16-bit
 * floats that are multiplied as f32, use Winograd's method (ACCEL_WINOGRAD=0: never). Its errors
 * are relative to the largest value in the 4 x 4 that a tile of 2 x 2 results reads. Values that
 * are not finite, or above a quarter of the largest float, make NaN of the tile. */
#ifndef ACI_CPU_CONV_H
#define ACI_CPU_CONV_H
#include "device/cpu/gemm.h"

enum { ACI_CONV_DIMS = 3 };

/* Space is (depth, height, width). Unused leading dims have extent 1, kernel 1, stride 1. */
typedef struct aci_conv {
  aci_gemm_type type; /* of all operands: F32, F64, BF16 or F16 */
  int64_t n, groups;
  /* channels of x and of y per group */
  int64_t ci, co;
  /* extents of x, of the kernel, of y */
  int64_t in[ACI_CONV_DIMS], k[ACI_CONV_DIMS], out[ACI_CONV_DIMS];
  int64_t stride[ACI_CONV_DIMS], pad[ACI_CONV_DIMS], dil[ACI_CONV_DIMS];
} aci_conv;

/* x (n, groups*ci, in), w (groups*co, ci, k), bias (groups*co) or NULL -> y (n, groups*co, out).
 * OOM when scratch cannot be had. team may be NULL. */
ac_status aci_conv_forward(ac_team *team, const aci_conv *c, const void *x, const void *w,
                           const void *bias, void *y, ac_err *e);
/* dx (like x) = the sum of dy over the reads of x, plus bias (groups*ci) or NULL: a transposed
 * convolution. */
ac_status aci_conv_backward_input(ac_team *team, const aci_conv *c, const void *dy, const void *w,
                                  const void *bias, void *dx, ac_err *e);
/* dw (like w). */
ac_status aci_conv_backward_weight(ac_team *team, const aci_conv *c, const void *dy, const void *x,
                                   void *dw, ac_err *e);

#endif
