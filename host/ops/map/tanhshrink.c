/* tanhshrink: y = x - tanh x.          x (any shape) -> y (same shape)
   gradient: dx = dy tanh(x)^2, in one pass by tanhshrink_backward.
   example: accel.tensor { -1.0, 0.0, 2.0 }:tanhshrink() --> { -0.238406, 0, 1.035972 } */
#include "ops/map/map.h"

#define FWD(T, p, x) ((x)-m_tanh(x))
#define BWD(T, p, dy, x) ((dy)*m_tanh(x) * m_tanh(x))

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_tanhshrink_backward(&g->x, g->dout[0], ARG_T(g, 0)));
}

static int plain_backward(ac_expr *x, const ac_value *a, ac_tensor **out) {
  out[0] = x_mul(x, T(a[0].tensor), T(x_square(x, x_tanh(x, a[1].tensor))));
  return 1;
}

AC_MAP1(tanhshrink, FWD, .sig = "tanhshrink(x: tensor) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0), .flops_per_element = 13);
AC_MAP2(tanhshrink_backward, BWD, .sig = "tanhshrink_backward(dy: tensor, x: tensor) -> tensor",
        .composed = plain_backward, .hidden = true, .flops_per_element = 14);
