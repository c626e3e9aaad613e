/* log1p: y = ln(1 + x), accurate near 0.          x (any shape) -> y (same shape)
   gradient: dx = dy / (1 + x).
   example: accel.tensor { 0.0, 1 }:log1p() --> { 0, 0.693147 } */
#include "ops/map/map.h"

#define FWD(T, p, x) (m_log1p(x))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0];
  ac_scalar one = aci_float(1);
  ac_grad_set(g, 0, x_div(x, T(dy), T(x_add(x, T(ARG_T(g, 0)), F(1), one))));
}

AC_MAP1(log1p, FWD, .sig = "log1p(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 8);
