/* ndtri: the inverse of ndtr: the number below which a standard normal one lies with probability x.
   x (any shape, integers are computed in f32) -> y (same shape)
   gradient: dx = dy sqrt(2 pi) e^(y^2 / 2).
   example: accel.tensor { 0.5, 0.975, 0 }:ndtri() --> { 0, 1.959964, -inf } */
#include "ops/map/map.h"
#include "ops/map/special.h"

#define FWD(T, p, x) ((T)aci_ndtri((double)(x)))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *e = x_exp(x, x_mul(x, T(x_square(x, g->out[0])), F(0.5)));
  ac_grad_set(g, 0, x_mul(x, T(g->dout[0]), T(x_mul(x, T(e), F(2.5066282746310002)))));
}

AC_MAP1(ndtri, FWD, .sig = "ndtri(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_OUT(0),
        .flops_per_element = 40);
