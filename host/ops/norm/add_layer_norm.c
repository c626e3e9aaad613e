/* add_layer_norm: sum = residual + x and y = layer_norm(sum) in one pass over both, for blocks that add a branch
   to their stream and normalise the result. sum is rounded to its dtype before it is normalised. Both results
   equal the two ops', bit for bit.
   x, residual (..., normalized_shape), weight, bias (normalized_shape) -> y, sum (shape, the dtype that x and
   residual promote to), without broadcasting
   gradient: d = dsum + the gradient of layer_norm for dy at sum, in one pass by layer_norm_backward. dx =
   dresidual = d, each in its own dtype. dweight and dbias as layer_norm's. Of the tensors only sum and the weight
   are kept.
   example: accel.add_layer_norm(accel.tensor { 1.0, 0 }, accel.tensor { 2.0, 1 }, { 2 }) --> { 0.999997, -0.999997 }, { 3, 1 } */
#include "ops/norm/norm.h"

static ac_status shape(ac_frame *f, ac_err *e) { return aci_norm_add_shape(f, false, e); }
static ac_status cpu(ac_frame *f, ac_err *e) { return aci_norm_run(f, false, ARG_F(f, 5), e); }

static void grad(ac_grad *g) {
  ac_tensor *dy = g->dout[0], *d = g->dout[1], *more[2] = {NULL, NULL};
  const ac_value *a = g->args;
  ac_tensor *w = ARG_NONE(g, 3) ? NULL : ARG_T(g, 3);
  if (dy != NULL)
    d = x_layer_norm_backward(&g->x, dy, g->out[1], a[2].ints, a[2].n, w, ARG_F(g, 5), d, &more[0],
                              &more[1]);
  ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, d));
  ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, d));
  ac_grad_set(g, 3, more[0]);
  if (!ARG_NONE(g, 4)) ac_grad_set(g, 4, w != NULL ? more[1] : ac_grad_reduce_to(g, 4, dy));
}

AC_OP(
    add_layer_norm,
    .sig =
        "add_layer_norm(x: tensor, residual: tensor, normalized_shape: shape, weight: tensor?, bias: "
        "tensor?, eps: float = 1e-5) -> (y: tensor, sum: tensor)",
    .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(3) | AC_SAVE_OUT(1),
    .flops_per_element = 9);
