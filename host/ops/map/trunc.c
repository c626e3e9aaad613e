/* trunc: y = x without its fraction. Integers stay unchanged.          x (any shape) -> y (same shape, dtype)
   gradient: dx = 0.
   example: accel.tensor { 1.8, -1.8 }:trunc() --> { 1, -1 } */
#include "ops/map/map.h"

#define FWD(T, p, x) ACI_BY_INT(x, x, m_trunc(x))

static void grad(ac_grad *g) { aci_grad_zero(g, 0); }

AC_MAP1N(trunc, FWD, .sig = "trunc(x: tensor) -> tensor", .grad = grad, .inplace = true,
         .alias = "fix");
