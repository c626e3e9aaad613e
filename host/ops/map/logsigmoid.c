/* logsigmoid: y = ln sigmoid(x) = min(x, 0) - ln(1 + e^-|x|), accurate on both sides.
   x (any shape) -> y (same shape)
   gradient: dx = dy sigmoid(-x), in one pass by logsigmoid_backward.
   example: accel.tensor { -100.0, 0.0, 2.0 }:logsigmoid() --> { -100, -0.693147, -0.126928 } */
#include "ops/map/map.h"

#define FWD(T, p, x) (m_min(x, (T)0) - m_log1p(m_exp(-m_abs(x))))
#define BWD(T, p, dy, x) ((dy)*m_sigmoid(-(x)))

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_logsigmoid_backward(&g->x, g->dout[0], ARG_T(g, 0)));
}

static int plain_backward(ac_expr *x, const ac_value *a, ac_tensor **out) {
  out[0] = x_mul(x, T(a[0].tensor), T(x_sigmoid(x, x_neg(x, a[1].tensor))));
  return 1;
}

AC_MAP1(logsigmoid, FWD, .sig = "logsigmoid(x: tensor) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0), .flops_per_element = 20);
AC_MAP2(logsigmoid_backward, BWD, .sig = "logsigmoid_backward(dy: tensor, x: tensor) -> tensor",
        .composed = plain_backward, .hidden = true, .flops_per_element = 12);
