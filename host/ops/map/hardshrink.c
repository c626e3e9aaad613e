/* hardshrink: y = x if |x| > lambd, else 0. NaN stays NaN.          x (any shape) -> y (same shape)
   gradient: dx = dy if |x| > lambd, else 0.
   example: accel.tensor { -2.0, 0.25, 1.0 }:hardshrink() --> { -2, 0, 1 } */
#include "ops/map/map.h"

#define FWD(T, p, x) ((x) >= -p[0] && (x) <= p[0] ? 0 : (x))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *beyond = x_gt(x, T(x_abs(x, ARG_T(g, 0))), F(ARG_F(g, 1)));
  ac_grad_set(g, 0, x_where(x, beyond, T(g->dout[0]), F(0)));
}

AC_MAP1(hardshrink, FWD, .sig = "hardshrink(x: tensor, lambd: float = 0.5) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0), .flops_per_element = 2);
