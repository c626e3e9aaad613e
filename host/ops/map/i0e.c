/* i0e: y = e^-|x| I_0(x), the modified Bessel function of order 0 without its growth.
   x (any shape, integers are computed in f32) -> y (same shape)
   gradient: dx = dy (i1e(x) - sign(x) y).
   example: accel.tensor { 0.0, 1, -200 }:i0e() --> { 1, 0.46576, 0.028227 } */
#include "ops/map/map.h"
#include "ops/map/special.h"

#define FWD(T, p, x) ((T)aci_i0e((double)(x)))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *same = x_mul(x, T(x_sign(x, ARG_T(g, 0))), T(g->out[0]));
  ac_tensor *slope = x_sub(x, T(x_i1e(x, ARG_T(g, 0))), T(same), aci_float(1));
  ac_grad_set(g, 0, x_mul(x, T(g->dout[0]), T(slope)));
}

AC_MAP1(i0e, FWD, .sig = "i0e(x: tensor) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0) | AC_SAVE_OUT(0), .flops_per_element = 40);
