/* erfcx: y = e^(x^2) erfc(x), which neither over- nor underflows for large x.
   x (any shape, integers are computed in f32) -> y (same shape)
   gradient: dx = dy (2 x y - 2 / sqrt(pi)).
   example: accel.tensor { 0.0, 1, 100 }:erfcx() --> { 1, 0.427584, 0.005642 } */
#include "ops/map/map.h"
#include "ops/map/special.h"

#define FWD(T, p, x) ((T)aci_erfcx((double)(x)))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *slope = x_mul(x, T(x_mul(x, T(ARG_T(g, 0)), F(2))), T(g->out[0]));
  slope = x_sub(x, T(slope), F(1.1283791670955126), aci_float(1));
  ac_grad_set(g, 0, x_mul(x, T(g->dout[0]), T(slope)));
}

AC_MAP1(erfcx, FWD, .sig = "erfcx(x: tensor) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0) | AC_SAVE_OUT(0), .flops_per_element = 40);
