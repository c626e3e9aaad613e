/* vdot: y = sum of x_i other_i, the scalar product of two vectors: dot for real numbers.
   x (n), other (n) -> y ()
   gradient: as for dot.
   example: accel.vdot(accel.tensor { 1.0, 2 }, accel.tensor { 3.0, 4 }) --> 11 */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  out[0] = x_dot(x, a[0].tensor, a[1].tensor);
  return 1;
}

AC_OP(vdot, .sig = "vdot(x: tensor, other: tensor) -> tensor", .composed = composed);
