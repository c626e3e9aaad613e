/* add_rms_norm: sum = residual + x and y = rms_norm(sum) in one pass over both, for blocks that add a branch to
   their stream and normalise the result. sum is rounded to its dtype before it is normalised. Both results equal
   the two ops', bit for bit.
   x, residual (..., normalized_shape), weight (normalized_shape) -> y, sum (shape, the dtype that x and residual
   promote to), without broadcasting
   gradient: d = dsum + the gradient of rms_norm for dy at sum, in one pass by rms_norm_backward. dx = dresidual =
   d, each in its own dtype. dweight as rms_norm's. Of the tensors only sum and the weight are kept.
   example: accel.add_rms_norm(accel.tensor { 1.0, 2 }, accel.tensor { 2.0, 2 }, { 2 }) --> { 0.848528, 1.131371 }, { 3, 4 } */
#include "ops/norm/norm.h"

static ac_status shape(ac_frame *f, ac_err *e) { return aci_norm_add_shape(f, true, e); }
static ac_status cpu(ac_frame *f, ac_err *e) {
  return aci_norm_run(f, true, aci_norm_epsilon(&f->args[4], f->out[1]->dtype), e);
}

static void grad(ac_grad *g) {
  ac_tensor *dy = g->dout[0], *d = g->dout[1], *dweight = NULL, *sum = g->out[1];
  const ac_value *a = g->args;
  ac_tensor *w = ARG_NONE(g, 3) ? NULL : ARG_T(g, 3);
  const double eps = aci_norm_epsilon(&a[4], sum->dtype);
  if (dy != NULL) d = x_rms_norm_backward(&g->x, dy, sum, a[2].ints, a[2].n, w, eps, d, &dweight);
  ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, d));
  ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, d));
  ac_grad_set(g, 3, dweight);
}

AC_OP(
    add_rms_norm,
    .sig =
        "add_rms_norm(x: tensor, residual: tensor, normalized_shape: shape, weight: tensor?, eps: float?) -> "
        "(y: tensor, sum: tensor)",
    .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(3) | AC_SAVE_OUT(1),
    .flops_per_element = 6);
