/* ndtr: y = the normal distribution function, the probability that a standard normal number is below x.
   x (any shape, integers are computed in f32) -> y (same shape)
   gradient: dx = dy e^(-x^2 / 2) / sqrt(2 pi).
   example: accel.tensor { 0.0, 1.96, -3 }:ndtr() --> { 0.5, 0.975002, 0.00135 } */
#include "ops/map/map.h"
#include "ops/map/special.h"

#define FWD(T, p, x) ((T)aci_ndtr((double)(x)))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *e = x_exp(x, x_mul(x, T(x_square(x, ARG_T(g, 0))), F(-0.5)));
  ac_grad_set(g, 0, x_mul(x, T(g->dout[0]), T(x_mul(x, T(e), F(0.3989422804014327)))));
}

AC_MAP1(ndtr, FWD, .sig = "ndtr(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .flops_per_element = 40);
