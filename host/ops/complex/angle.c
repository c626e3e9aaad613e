/* angle: the angle of complex numbers in radians, from -pi to pi. Of real numbers 0, or pi if negative.
   x (any shape) -> y (same shape), f32 for c64, f64 for c128
   gradient: through atan2. Real numbers get 0.
   example: accel.tensor { 2.0, -1.0 }:angle() --> { 0, 3.141593 } */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *z = a[0].tensor;
  if (aci_is_complex(z)) {
    out[0] = x_atan2(x, T(aci_im(x, z)), T(aci_re(x, z)));
    return 1;
  }
  if (!ac_dtype_is_float((ac_dtype)z->dtype)) z = x_cast(x, z, AC_F32);
  /* NaN stays, and the gradient is 0 */
  ac_tensor *plus = x_where(x, x_isnan(x, z), T(x_mul(x, T(z), F(0))), F(0));
  out[0] = x_where(x, x_lt(x, T(z), F(0)), F(0x1.921fb54442d18p+1), T(plus));
  return 1;
}

AC_OP(angle, .sig = "angle(x: tensor) -> tensor", .composed = composed,
      .on_complex = aci_complex_composed);
