/* digamma: y = the derivative of ln gamma(x). -inf at 0, NaN at negative integers.
   x (any shape, integers are computed in f32) -> y (same shape)
   gradient: dx = dy polygamma(1, x).
   example: accel.tensor { 1.0, 0.5 }:digamma() --> { -0.577216, -1.96351 } */
#include "ops/map/map.h"
#include "ops/map/special.h"

#define FWD(T, p, x) ((T)aci_digamma((double)(x)))

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_mul(&g->x, T(g->dout[0]), T(x_polygamma_of(&g->x, ARG_T(g, 0), 1))));
}

AC_MAP1(digamma, FWD, .sig = "digamma(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 40);
