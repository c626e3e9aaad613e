/* reciprocal: y = 1 / x.          x (any shape) -> y (same shape)
   gradient: dx = -dy * y^2.
   example: accel.tensor { 2.0, -4 }:reciprocal() --> { 0.5, -0.25 } */
#include "ops/map/map.h"

#define FWD(T, p, x) (1 / (x))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0];
  ac_tensor *y = g->out[0];
  ac_grad_set(g, 0, x_neg(x, x_mul(x, T(dy), T(x_mul(x, T(y), T(y))))));
}

AC_MAP1(reciprocal, FWD, .sig = "reciprocal(x: tensor) -> tensor", .grad = grad,
        .save = AC_SAVE_OUT(0), .inplace = true, .flops_per_element = 1);
