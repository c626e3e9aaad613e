/* log_ndtr: y = the logarithm of ndtr(x), exact far below 0 as well.
   x (any shape, integers are computed in f32) -> y (same shape)
   gradient: dx = dy sqrt(2 / pi) / erfcx(-x / sqrt 2).
   example: accel.tensor { 0.0, -20 }:log_ndtr() --> { -0.693147, -203.917152 } */
#include "ops/map/map.h"
#include "ops/map/special.h"

#define FWD(T, p, x) ((T)aci_log_ndtr((double)(x)))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *e = x_erfcx(x, x_mul(x, T(ARG_T(g, 0)), F(-0.70710678118654752)));
  ac_tensor *dx = x_div(x, T(x_mul(x, T(g->dout[0]), F(0.79788456080286536))), T(e));
  ac_grad_set(g, 0, dx);
}

AC_MAP1(log_ndtr, FWD, .sig = "log_ndtr(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .flops_per_element = 40);
