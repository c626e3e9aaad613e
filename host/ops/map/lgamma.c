/* lgamma: y = ln |gamma(x)|.          x (any shape, integers are computed in f32) -> y (same shape)
   gradient: dx = dy digamma(x).
   example: accel.tensor { 1.0, 5, 0.5 }:lgamma() --> { 0, 3.178054, 0.572365 } */
#include "ops/map/map.h"

#define FWD(T, p, x) ((T)lgamma((double)(x)))

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_mul(&g->x, T(g->dout[0]), T(x_digamma(&g->x, ARG_T(g, 0)))));
}

AC_MAP1(lgamma, FWD, .sig = "lgamma(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 40);
