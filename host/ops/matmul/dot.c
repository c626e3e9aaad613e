/* dot: the sum of products of two vectors.
   x (n), other (n) -> y (). Dtypes: floats and integers.
   gradient: as for matmul.
   example: accel.tensor({ 1.0, 2.0 }):dot(accel.tensor { 3.0, 4.0 }) --> 11 */
#include "ops/matmul/check.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  if (!aci_product_ranks(x, a[0].tensor, 1, a[1].tensor, 1, "matmul takes other ranks")) return 0;
  out[0] = x_matmul(x, a[0].tensor, a[1].tensor);
  return 1;
}

AC_OP(dot, .sig = "dot(x: tensor, other: tensor) -> tensor", .composed = composed,
      .on_complex = aci_complex_composed);
