/* atan: y = arctan x in [-pi/2, pi/2].          x (any shape) -> y (same shape)
   gradient: dx = dy / (1 + x^2).
   example: accel.tensor { -1.0, 0.0, math.huge }:atan() --> { -0.785398, 0, 1.570796 } */
#include "ops/map/angle.h"
#include "ops/map/map.h"

#define FWD(T, p, x) ACI_VM1(x, aci_atanf, atan)

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *under = x_add(x, T(x_square(x, ARG_T(g, 0))), F(1), aci_float(1));
  ac_grad_set(g, 0, x_div(x, T(g->dout[0]), T(under)));
}

AC_MAP1(atan, FWD, .sig = "atan(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 20, .alias = "arctan");
