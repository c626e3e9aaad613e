/* log_softmax: y = x - max - ln(sum of e^(x - max)) along dim.          x (floating point) -> y (same shape)
   With dtype, x is read as that dtype.
   gradient: dx = dy - e^y * sum(dy), in one pass by log_softmax_backward.
   example: accel.tensor { 0.0, 1, 2 }:log_softmax(-1) --> { -2.407606, -1.407606, -0.407606 } */
#include "ops/reduce/softmax.h"

static ac_status cpu(ac_frame *f, ac_err *e) { return aci_softmax_run(f, true, e); }
static ac_status cpu_backward(ac_frame *f, ac_err *e) {
  return aci_softmax_run_backward(f, true, e);
}

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_log_softmax_backward(&g->x, g->dout[0], g->out[0], ARG_I(g, 1)));
}

static int plain_backward(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *dy = a[0].tensor, *y = a[1].tensor;
  ac_tensor *s = x_sum(x, dy, &a[2].i, 1, true, NULL);
  out[0] = x_sub(x, T(dy), T(x_mul(x, T(x_exp(x, y)), T(s))), aci_float(1));
  return 1;
}

AC_OP(log_softmax, .sig = "log_softmax(x: tensor, dim: dim, dtype: dtype?) -> tensor",
      .shape = aci_softmax_shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_OUT(0),
      .flops_per_element = 12);
AC_OP(log_softmax_backward,
      .sig = "log_softmax_backward(dy: tensor, y: tensor, dim: dim) -> tensor",
      .shape = aci_softmax_shape_backward, .cpu = cpu_backward, .composed = plain_backward,
      .hidden = true, .flops_per_element = 12);
