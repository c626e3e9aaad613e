/* frac: y = x - trunc(x), with the sign of x.          x (any shape) -> y (same shape)
   gradient: dx = dy.
   example: accel.tensor { -1.25, 0.5, 3.0 }:frac() --> { -0.25, 0.5, 0 } */
#include "ops/map/map.h"

#define FWD(T, p, x) ((x)-m_trunc(x))

static void grad(ac_grad *g) { ac_grad_set(g, 0, g->dout[0]); }

AC_MAP1(frac, FWD, .sig = "frac(x: tensor) -> tensor", .grad = grad, .inplace = true,
        .flops_per_element = 2);
