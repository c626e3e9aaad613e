/* Shared by layer_norm and rms_norm, with a residual and without: a row is the elements of the
 * normalised (last) dims. Mean and deviation are not kept but computed again in the backward, from
 * x, which is saved anyway.
 *
 * Arguments of a forward: x, the residual of the add_ ops, normalized_shape, weight, bias unless
 * rms, eps. Results: y and, for the add_ ops, sum = residual + x, which is then normalised. Of a
 * backward: dy, x (or sum), normalized_shape, weight, eps, dsum.
 *
 * Map of the folder. One op, one file of its name. Shared files:
 *
 *   norm.h, norm_rules.c, norm_kernel.c       layer_norm rms_norm add_layer_norm add_rms_norm:
 *   rules, and rows on the CPU
 *   norm_kernel.cu norm_lines.cu norm_rows.cuh  the same on CUDA: rows of any strides, and
 *   contiguous rows
 *   channel.[ch]                              batch_norm group_norm instance_norm: checks and the
 *   choice of loops,
 *                                             channel_run.c and channel_column.c are the loops
 *   channel.cu channel_sums.cuh batch_norm.cu the same on CUDA
 *   normalize.c cosine_similarity.c           composed of other ops */
#ifndef ACI_OPS_NORM_H
#define ACI_OPS_NORM_H
#include <float.h>

#include "ops/reduce/reduce.h"

/* Checks x, normalized_shape and weight or bias (arguments at..at+1, then param and its name).
 * Pushes nothing. */
ac_status aci_norm_check(const ac_frame *f, int at, int param, ac_err *e);
/* Checks the arguments of an add_ op and pushes y and sum, both of the dtype that x and residual
 * promote to. */
ac_status aci_norm_add_shape(ac_frame *f, bool rms, ac_err *e);
/* y := (x - mean) * rstd * weight + bias. rms: y := x * rstd * weight. */
ac_status aci_norm_run(ac_frame *f, bool rms, double eps, ac_err *e);
/* Outputs dx, to which dsum is added, and with a weight dweight, and unless rms dbias. */
ac_status aci_norm_backward_shape(ac_frame *f, bool rms, ac_err *e);
ac_status aci_norm_backward_run(ac_frame *f, bool rms, double eps, ac_err *e);
/* A backward in plain ops, for second derivatives. */
int aci_norm_backward_plain(ac_expr *e, const ac_value *args, bool rms, ac_tensor **out);

/* rms_norm's default eps: the machine epsilon of the compute type of this dtype. */
static inline double aci_norm_epsilon(const ac_value *v, uint8_t dtype) {
  return v->kind == AC_T_FLOAT ? v->f : dtype == AC_F64 ? DBL_EPSILON : FLT_EPSILON;
}
/* Bit mask over the last n of ndim dims. */
static inline uint32_t aci_norm_mask(int ndim, int n) {
  return (uint32_t)(((1ull << n) - 1) << (ndim - n));
}

#endif
