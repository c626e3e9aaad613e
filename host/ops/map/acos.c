/* acos: y = arccos x in [0, pi]. NaN beyond 1.          x (any shape) -> y (same shape)
   gradient: dx = -dy / sqrt(1 - x^2).
   example: accel.tensor { -1.0, 0.0, 1.0 }:acos() --> { 3.141593, 1.570796, 0 } */
#include "ops/map/angle.h"
#include "ops/map/map.h"

#define FWD(T, p, x) ACI_VM1(x, aci_acosf, acos)

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *rest = x_sub(x, F(1), T(x_square(x, ARG_T(g, 0))), aci_float(1));
  ac_grad_set(g, 0, x_neg(x, x_mul(x, T(g->dout[0]), T(x_rsqrt(x, rest)))));
}

AC_MAP1(acos, FWD, .sig = "acos(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 20, .alias = "arccos");
