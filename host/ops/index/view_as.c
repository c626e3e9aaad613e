/* view_as: x in the shape of other, without copying.
   x (as many elements as other, in memory that allows it), other -> view of x (shape of other)
   gradient: as for view. other gets none.
   example: accel.arange(4):view_as(accel.zeros(2, 2)) --> { { 0, 1 }, { 2, 3 } } */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  out[0] = x_view(x, a[0].tensor, a[1].tensor->shape, a[1].tensor->ndim);
  return 1;
}

AC_OP(view_as, .sig = "view_as(x: tensor, other: tensor) -> tensor", .composed = composed,
      .on_complex = aci_complex_composed);
