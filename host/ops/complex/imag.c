/* imag: the imaginary parts of complex numbers.
   x (any shape, c64 or c128) -> view of x (same shape, f32 or f64)
   gradient: through view_as_real and select.
   example: accel.complex(accel.tensor { 1.0, 2.0 }, accel.tensor { 3.0, 4.0 }):imag() --> { 3, 4 } */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  if (!aci_is_complex(a[0].tensor)) {
    x->st = AC_FAIL(x->e, DTYPE, "a tensor of %s has no imaginary part",
                    ac_dtype_name((ac_dtype)a[0].tensor->dtype));
    return 0;
  }
  out[0] = aci_im(x, a[0].tensor);
  return 1;
}

AC_OP(imag, .sig = "imag(x: tensor) -> tensor", .composed = composed,
      .on_complex = aci_complex_composed);
