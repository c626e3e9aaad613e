/* reshape_as: x in the shape of other: a view if the memory allows it, otherwise a copy.
   x (as many elements as other), other -> y (shape of other)
   gradient: as for reshape. other gets none.
   example: accel.tensor({ { 1, 2 }, { 3, 4 } }):t():reshape_as(accel.zeros(4)) --> { 1, 3, 2, 4 } */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  out[0] = x_reshape(x, a[0].tensor, a[1].tensor->shape, a[1].tensor->ndim);
  return 1;
}

AC_OP(reshape_as, .sig = "reshape_as(x: tensor, other: tensor) -> tensor", .composed = composed,
      .on_complex = aci_complex_composed);
