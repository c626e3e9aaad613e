/* mv: the product of a matrix and a vector.
   x (m, k), vec (k) -> y (m). Dtypes: floats and integers.
   gradient: as for matmul.
   example: accel.tensor({ { 1.0, 2.0 }, { 3.0, 4.0 } }):mv(accel.tensor { 1.0, 10.0 }) --> { 21, 43 } */
#include "ops/matmul/check.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  if (!aci_product_ranks(x, a[0].tensor, 2, a[1].tensor, 1, "matmul takes other ranks")) return 0;
  out[0] = x_matmul(x, a[0].tensor, a[1].tensor);
  return 1;
}

AC_OP(mv, .sig = "mv(x: tensor, vec: tensor) -> tensor", .composed = composed,
      .on_complex = aci_complex_composed);
