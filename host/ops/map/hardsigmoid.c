/* hardsigmoid: y = min(max(x + 3, 0), 6) / 6, a sigmoid of three straight lines.
   x (any shape) -> y (same shape)
   gradient: dx = dy / 6 if -3 < x < 3, else 0, in one pass by hardsigmoid_backward.
   example: accel.tensor { -4.0, 0.0, 1.5 }:hardsigmoid() --> { 0, 0.5, 0.75 } */
#include "ops/map/map.h"

#define FWD(T, p, x) ((x) <= -3 ? 0 : (x) >= 3 ? 1 : ((x) + 3) / 6)
#define BWD(T, p, dy, x) (((x) > -3) & ((x) < 3) ? (dy) / 6 : 0)

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_hardsigmoid_backward(&g->x, g->dout[0], ARG_T(g, 0)));
}
static void grad_backward(ac_grad *g) { /* linear in dy, constant in x almost everywhere */
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0, x_hardsigmoid_backward(&g->x, g->dout[0], ARG_T(g, 1)));
  aci_grad_zero(g, 1);
}

AC_MAP1(hardsigmoid, FWD, .sig = "hardsigmoid(x: tensor) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0), .inplace = true, .flops_per_element = 3);
AC_MAP2(hardsigmoid_backward, BWD, .sig = "hardsigmoid_backward(dy: tensor, x: tensor) -> tensor",
        .grad = grad_backward, .save = AC_SAVE_IN(1), .hidden = true);
