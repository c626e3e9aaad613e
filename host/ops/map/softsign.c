/* softsign: y = x / (1 + |x|).          x (any shape) -> y (same shape)
   gradient: dx = dy / (1 + |x|)^2, in one pass by softsign_backward.
   example: accel.tensor { -3.0, 0.0, 1.0 }:softsign() --> { -0.75, 0, 0.5 } */
#include "ops/map/map.h"

#define FWD(T, p, x) ((x) / (1 + m_abs(x)))
#define BWD(T, p, dy, x) ((dy) / (1 + m_abs(x)) / (1 + m_abs(x)))

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_softsign_backward(&g->x, g->dout[0], ARG_T(g, 0)));
}

static int plain_backward(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *under = x_add(x, T(x_abs(x, a[1].tensor)), F(1), aci_float(1));
  out[0] = x_div(x, T(a[0].tensor), T(x_square(x, under)));
  return 1;
}

AC_MAP1(softsign, FWD, .sig = "softsign(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .flops_per_element = 3);
AC_MAP2(softsign_backward, BWD, .sig = "softsign_backward(dy: tensor, x: tensor) -> tensor",
        .composed = plain_backward, .hidden = true, .flops_per_element = 4);
