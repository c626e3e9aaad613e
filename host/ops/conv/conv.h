/* Declarations shared by convolutions and their adjoints: window arguments, shape rules, gradient
 * rules, and calls of the kernels in device/cpu/kernels/conv.h. A convolution has 1 to 3 spatial
 * dims. Batches are optional, as in PyTorch.
 *
 * Map of the folder. One op, one file of its name. Shared files:
 *
 *   conv.[ch], plan.h       convolutions: window arguments, shape and gradient rules. plan.h lays
 *                           windows, pools and patches out for the CPU and for device modules
 *   pool.[ch]               pools: shape and gradient rules. pool_avg.c and pool_max.c are their
 *                           CPU loops
 *   patches.[ch]            unfold and fold (im2col, col2im)
 *   conv.cu, conv.cuh       convolutions on CUDA: chooses between conv_dnn.cu (cuDNN. dnn.h
 *                           declares it, dnn_check.cu compares it with cuDNN's header),
 *                           conv_gemm.cu with conv_gather.cuh (implicit GEMM) and conv_direct.cu
 *                           (few channels)
 *   pool.cu patches.cu      pools and patches on CUDA. planes.cuh: tensors as planes (H, W)
 *
 * The CPU's kernels of convolutions are in device/cpu/kernels. */
#ifndef ACI_OPS_CONV_H
#define ACI_OPS_CONV_H
#include "ops/conv/plan.h"
#include "ops/core/op.h"

/* ---- windows, for pools as well ---- */
enum { ACI_WINDOW_MAX = 1 << 30 };
/* Argument arg (ints, one number for all dims) as n values from `least` to ACI_WINDOW_MAX. INVALID
 * names it.
 */
ac_status aci_window_ints(const ac_frame *f, int arg, int n, int64_t least, int64_t *v, ac_err *e);
/* SHAPE unless x is (N, C, space) or (C, space) with n dims of space. DTYPE unless it holds
 * floats. */
ac_status aci_window_input(const ac_frame *f, const ac_tensor *x, int n, ac_err *e);
/* Extents of the n dims of space, of (N, C, space), with N = 1 without a batch. */
static inline const int64_t *aci_space(const int64_t *shape, int ndim, int n) {
  return shape + ndim - n;
}
static inline int64_t aci_space_batch(const int64_t *shape, int ndim, int n) {
  return ndim == n + 2 ? shape[0] : 1;
}
static inline int64_t aci_space_channels(const int64_t *shape, int ndim, int n) {
  return shape[ndim - n - 1];
}

/* ---- convolutions ---- */
/* conv<n>d: (x, weight, bias, stride, padding, dilation, groups). */
ac_status aci_conv_shape(ac_frame *f, int n, ac_err *e);
ac_status aci_conv_run(ac_frame *f, int n, ac_err *e);
int64_t aci_conv_flops(const ac_frame *f);
void aci_conv_grad(ac_grad *g, int n);
/* conv_transpose<n>d: (x, weight, bias, stride, padding, output_padding, groups, dilation). */
ac_status aci_conv_transpose_shape(ac_frame *f, int n, ac_err *e);
ac_status aci_conv_transpose_run(ac_frame *f, int n, ac_err *e);
int64_t aci_conv_transpose_flops(const ac_frame *f);
void aci_conv_transpose_grad(ac_grad *g, int n);

/* The lists of a recorded call, passed on as they were given. */
typedef struct aci_conv_lists {
  const ac_value *stride, *padding, *dilation;
  int64_t groups;
} aci_conv_lists;
/* conv<n>d without bias, cut down to `shape` (of a batched or unbatched result) if the stride left
 * room for more. */
ac_tensor *aci_conv_expr(ac_expr *ex, int n, ac_tensor *x, ac_tensor *w, const aci_conv_lists *l,
                         const int64_t *shape, int ndim);
ac_tensor *aci_conv_input_expr(ac_expr *ex, ac_tensor *dy, ac_tensor *w, const aci_conv_lists *l,
                               const int64_t *shape, int ndim);
ac_tensor *aci_conv_weight_expr(ac_expr *ex, ac_tensor *dy, ac_tensor *x, const aci_conv_lists *l,
                                const int64_t *shape, int ndim);

#endif
