/* sgn: complex numbers divided by their magnitude, 0 for 0. Of real numbers the sign.
   x (any shape) -> y (same shape, dtype)
   gradient: of its formula, 0 at 0.
   example: accel.complex(accel.tensor { 3.0 }, accel.tensor { 4.0 }):sgn():imag() --> { 0.8 } */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *z = a[0].tensor;
  if (!aci_is_complex(z)) {
    out[0] = x_sign(x, z);
    return 1;
  }
  ac_tensor *zero = x_eq(x, T(z), F(0)), *r = x_masked_fill(x, x_abs(x, z), zero, F(1));
  out[0] = x_masked_fill(x, x_div(x, T(z), T(r)), zero, F(0)); /* for the gradient */
  return 1;
}

AC_OP(sgn, .sig = "sgn(x: tensor) -> tensor", .composed = composed,
      .on_complex = aci_complex_composed, .inplace = true);
