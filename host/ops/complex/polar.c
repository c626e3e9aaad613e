/* polar: complex numbers of magnitudes and angles, abs (cos angle + i sin angle).
   abs, angle (shapes that broadcast, both f32 or both f64) -> z (c64 or c128)
   gradient: of its formula.
   example: accel.polar(accel.tensor { 2.0 }, accel.tensor { 0.0 }):real() --> { 2 } */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *r = a[0].tensor, *t = a[1].tensor;
  out[0] = x_complex(x, x_mul(x, T(r), T(x_cos(x, t))), x_mul(x, T(r), T(x_sin(x, t))));
  return 1;
}

AC_OP(polar, .sig = "polar(abs: tensor, angle: tensor) -> tensor", .composed = composed);
