/* contiguous: x itself when its memory is row-major without gaps, else a copy that is.
   x (any shape) -> y (same)
   gradient: through clone.
   example: local x = accel.zeros(2, 3):t() return x:is_contiguous(), x:contiguous():is_contiguous() --> false, true */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  out[0] = aci_is_contiguous(a[0].tensor) ? a[0].tensor : x_clone(x, a[0].tensor);
  return 1;
}

AC_OP(contiguous, .sig = "contiguous(x: tensor) -> tensor", .composed = composed,
      .on_complex = aci_complex_composed);
