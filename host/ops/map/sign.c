/* sign: y = -1, 0 or 1 by the sign of x, 0 for NaN.          x (any shape) -> y (same shape, dtype)
   gradient: dx = 0.
   example: accel.tensor { -2.0, 0, 3 }:sign() --> { -1, 0, 1 } */
#include "ops/map/map.h"

#define FWD(T, p, x) ((T)((x) > 0) - (T)((x) < 0))

static void grad(ac_grad *g) { aci_grad_zero(g, 0); }

AC_MAP1N(sign, FWD, .sig = "sign(x: tensor) -> tensor", .grad = grad, .inplace = true);
