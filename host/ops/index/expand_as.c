/* expand_as: x repeated, without copying, to the shape of other.
   x (broadcasts to the shape of other), other -> view of x (shape of other)
   gradient: as for expand. other gets none.
   example: accel.tensor({ { 1 }, { 2 } }):expand_as(accel.zeros(2, 2)) --> { { 1, 1 }, { 2, 2 } } */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  out[0] = x_expand(x, a[0].tensor, a[1].tensor->shape, a[1].tensor->ndim);
  return 1;
}

AC_OP(expand_as, .sig = "expand_as(x: tensor, other: tensor) -> tensor", .composed = composed,
      .on_complex = aci_complex_composed);
