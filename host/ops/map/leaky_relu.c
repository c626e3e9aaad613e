/* leaky_relu: y = x if x > 0, else negative_slope x.          x (any shape) -> y (same shape)
   gradient: dx = dy if x > 0, else negative_slope dy, in one pass by leaky_relu_backward.
   example: accel.tensor { -2.0, 3.0 }:leaky_relu(0.1) --> { -0.2, 3 } */
#include "ops/map/map.h"

#define FWD(T, p, x) ((x) > 0 ? (x) : (x)*p[0])
#define BWD(T, p, dy, x) ((x) > 0 ? (dy) : (dy)*p[0])

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_leaky_relu_backward(&g->x, g->dout[0], ARG_T(g, 0), ARG_F(g, 1)));
}
static void grad_backward(ac_grad *g) { /* linear in dy, constant in x almost everywhere */
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0, x_leaky_relu_backward(&g->x, g->dout[0], ARG_T(g, 1), ARG_F(g, 2)));
  aci_grad_zero(g, 1);
}

AC_MAP1(leaky_relu, FWD, .sig = "leaky_relu(x: tensor, negative_slope: float = 0.01) -> tensor",
        .grad = grad, .save = AC_SAVE_IN(0), .inplace = true);
AC_MAP2(leaky_relu_backward, BWD,
        .sig = "leaky_relu_backward(dy: tensor, x: tensor, negative_slope: float) -> tensor",
        .grad = grad_backward, .save = AC_SAVE_IN(1), .hidden = true);
