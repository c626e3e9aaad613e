/* elu: y = x if x > 0, else alpha (e^x - 1).          x (any shape) -> y (same shape)
   gradient: dx = dy if x > 0, else dy alpha e^x, in one pass by elu_backward.
   example: accel.tensor { -1.0, 2.0 }:elu() --> { -0.632121, 2 } */
#include "ops/map/exponential.h"

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_elu_backward(&g->x, g->dout[0], ARG_T(g, 0), 1, ARG_F(g, 1), 1));
}

#define FWD(T, p, x) ACI_ELU(T, x, 1, p[0], 1)
#define BWD(T, p, dy, x) ACI_ELU_SLOPE(T, dy, x, p[0], p[1], p[2])

/* scale: of the whole. rate: of the exponent. Also the gradient of selu and celu. */
static int plain_backward(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *dy = a[0].tensor, *up = x_gt(x, T(a[1].tensor), F(0));
  ac_tensor *low = x_exp(x, x_mul(x, T(x_where(x, up, F(0), T(a[1].tensor))), F(a[4].f)));
  ac_tensor *slope = x_where(x, up, F(a[2].f), T(x_mul(x, T(low), F(a[2].f * a[3].f * a[4].f))));
  out[0] = x_mul(x, T(dy), T(slope));
  return 1;
}

AC_MAP1(elu, FWD, .sig = "elu(x: tensor, alpha: float = 1) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0), .inplace = true, .flops_per_element = 10);
AC_MAP2(
    elu_backward, BWD,
    .sig = "elu_backward(dy: tensor, x: tensor, scale: float, alpha: float, rate: float) -> tensor",
    .composed = plain_backward, .hidden = true, .flops_per_element = 10);
