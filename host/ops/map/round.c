/* round: y = nearest integer, halves to the even one. Integers stay unchanged.
   x (any shape) -> y (same shape, dtype)
   gradient: dx = 0.
   example: accel.tensor { 0.5, 1.5, -1.7 }:round() --> { 0, 2, -2 } */
#include "ops/map/map.h"

#define FWD(T, p, x) ACI_BY_INT(x, x, m_rint(x))

static void grad(ac_grad *g) { aci_grad_zero(g, 0); }

AC_MAP1N(round, FWD, .sig = "round(x: tensor) -> tensor", .grad = grad, .inplace = true);
