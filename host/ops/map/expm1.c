/* expm1: y = e^x - 1, accurate near 0.          x (any shape) -> y (same shape)
   gradient: dx = dy * (y + 1).
   example: accel.tensor { 0.0, 1 }:expm1() --> { 0, 1.718282 } */
#include "ops/map/map.h"

#define FWD(T, p, x) (m_expm1(x))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0];
  ac_scalar one = aci_float(1);
  ac_grad_set(g, 0, x_mul(x, T(dy), T(x_add(x, T(g->out[0]), F(1), one))));
}

AC_MAP1(expm1, FWD, .sig = "expm1(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_OUT(0),
        .inplace = true, .flops_per_element = 8);
