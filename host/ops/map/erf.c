/* erf: y = 2 / sqrt pi * integral of e^(-t^2) from 0 to x.          x (any shape) -> y (same shape)
   gradient: dx = dy * 2 / sqrt pi * e^(-x^2).
   example: accel.tensor { 0.0, 1 }:erf() --> { 0, 0.842701 } */
#include "ops/map/map.h"

#define FWD(T, p, x) (m_erf(x))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0];
  ac_tensor *e = x_exp(x, x_neg(x, x_mul(x, T(ARG_T(g, 0)), T(ARG_T(g, 0)))));
  ac_grad_set(g, 0, x_mul(x, T(dy), T(x_mul(x, T(e), F(1.1283791670955126)))));
}

AC_MAP1(erf, FWD, .sig = "erf(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 20);
