/* cos: y = cos x.          x (any shape) -> y (same shape)
   gradient: dx = -dy * sin x.
   example: accel.tensor { 0.0, 1 }:cos() --> { 1, 0.540302 } */
#include "ops/map/map.h"

#define FWD(T, p, x) (m_cos(x))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0];
  ac_grad_set(g, 0, x_mul(x, T(dy), T(x_neg(x, x_sin(x, ARG_T(g, 0))))));
}

AC_MAP1(cos, FWD, .sig = "cos(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 20);
