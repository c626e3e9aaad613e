/* floor: y = largest integer not above x. Integers stay unchanged.          x (any shape) -> y (same shape, dtype)
   gradient: dx = 0.
   example: accel.tensor { 1.8, -1.2 }:floor() --> { 1, -2 } */
#include "ops/map/map.h"

#define FWD(T, p, x) ACI_BY_INT(x, x, m_floor(x))

static void grad(ac_grad *g) { aci_grad_zero(g, 0); }

AC_MAP1N(floor, FWD, .sig = "floor(x: tensor) -> tensor", .grad = grad, .inplace = true);
