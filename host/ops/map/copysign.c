/* copysign: y = the magnitude of x with the sign of other, that of a zero included.
   x, other (any shapes that broadcast; integers are computed in f32) -> y
   gradient: dx = dy, negated if the sign changed, 0 if x is 0. dother = 0.
   example: accel.tensor { 1.5, -2 }:copysign(accel.tensor { -1.0, 3 }) --> { -1.5, 2 }
   example: accel.tensor { 1.5, -2 }:copysign(-1) --> { -1.5, -2 } */
#include "ops/map/map.h"

#define FWD(T, p, x, y) m_copysign(x, y)

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  if (ac_grad_needs(g, 0)) {
    ac_tensor *in = ARG_T(g, 0);
    ac_tensor *same = x_mul(x, T(x_sign(x, in)), T(x_sign(x, g->out[0])));
    ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, x_mul(x, T(g->dout[0]), T(same))));
  }
  aci_grad_zero(g, 1);
}

AC_MAP2(copysign, FWD, .sig = "copysign(x: operand, other: operand) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0) | AC_SAVE_OUT(0), .inplace = true);
