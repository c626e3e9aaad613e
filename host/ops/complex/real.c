/* real: the real parts of complex numbers. A real tensor is its own.
   x (any shape) -> view of x (same shape), f32 for c64, f64 for c128
   gradient: through view_as_real and select.
   example: accel.complex(accel.tensor { 1.0, 2.0 }, accel.tensor { 3.0, 4.0 }):real() --> { 1, 2 } */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  out[0] = aci_re(x, a[0].tensor);
  return 1;
}

AC_OP(real, .sig = "real(x: tensor) -> tensor", .composed = composed,
      .on_complex = aci_complex_composed);
