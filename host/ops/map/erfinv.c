/* erfinv: the inverse of erf. Infinite at -1 and 1, NaN beyond.
   x (any shape, integers are computed in f32) -> y (same shape)
   gradient: dx = dy sqrt(pi) / 2 e^(y^2).
   example: accel.tensor { 0.0, 0.5, -1 }:erfinv() --> { 0, 0.476936, -inf } */
#include "ops/map/map.h"
#include "ops/map/special.h"

#define FWD(T, p, x) ((T)aci_erfinv((double)(x)))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *e = x_exp(x, x_square(x, g->out[0]));
  ac_grad_set(g, 0, x_mul(x, T(g->dout[0]), T(x_mul(x, T(e), F(0.88622692545275801)))));
}

AC_MAP1(erfinv, FWD, .sig = "erfinv(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_OUT(0),
        .inplace = true, .flops_per_element = 40);
