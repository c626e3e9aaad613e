/* ldexp: y = x 2^other. Integers are computed in f32.
   x, other (any shapes that broadcast) -> y
   gradient: of the ops it consists of.
   example: accel.tensor { 1.5, -3 }:ldexp(accel.tensor { 3, -1 }) --> { 12, -1.5 } */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  const ac_dtype dt = (ac_dtype)a[0].tensor->dtype;
  ac_tensor *power = a[1].tensor;
  if (ac_dtype_is_float(dt) && !ac_dtype_is_float((ac_dtype)power->dtype))
    power = x_cast(x, power, dt);
  out[0] = x_mul(x, T(a[0].tensor), T(x_exp2(x, power)));
  return 1;
}

AC_OP(ldexp, .sig = "ldexp(x: tensor, other: tensor) -> tensor", .composed = composed);
