/* i0: y = I_0(x), the modified Bessel function of the first kind of order 0.
   x (any shape, integers are computed in f32) -> y (same shape)
   gradient: dx = dy I_1(x).
   example: accel.tensor { 0.0, 1, -2 }:i0() --> { 1, 1.266066, 2.279585 } */
#include "ops/map/map.h"
#include "ops/map/special.h"

#define FWD(T, p, x) ((T)(aci_i0e((double)(x)) * exp((double)m_abs(x))))

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_mul(&g->x, T(g->dout[0]), T(x_i1(&g->x, ARG_T(g, 0)))));
}

AC_MAP1(i0, FWD, .sig = "i0(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 40);
