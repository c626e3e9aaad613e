/* ceil: y = smallest integer not below x. Integers stay unchanged.          x (any shape) -> y (same shape, dtype)
   gradient: dx = 0.
   example: accel.tensor { 1.2, -1.2 }:ceil() --> { 2, -1 } */
#include "ops/map/map.h"

#define FWD(T, p, x) ACI_BY_INT(x, x, m_ceil(x))

static void grad(ac_grad *g) { aci_grad_zero(g, 0); }

AC_MAP1N(ceil, FWD, .sig = "ceil(x: tensor) -> tensor", .grad = grad, .inplace = true);
