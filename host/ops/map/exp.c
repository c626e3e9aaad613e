/* exp: y = e^x.          x (any shape) -> y (same shape)
   gradient: dx = dy * y.
   example: accel.tensor { 0.0, 1 }:exp() --> { 1, 2.718282 } */
#include "ops/map/map.h"

#define FWD(T, p, x) m_exp(x)

static void grad(ac_grad *g) { ac_grad_set(g, 0, x_mul(&g->x, T(g->dout[0]), T(g->out[0]))); }

AC_MAP1(exp, FWD, .sig = "exp(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_OUT(0),
        .inplace = true, .flops_per_element = 8);
