/* mm: the product of two matrices.
   x (m, k), mat2 (k, n) -> y (m, n). Dtypes: floats and integers.
   gradient: as for matmul.
   example: accel.tensor({ { 1.0, 2.0 } }):mm(accel.tensor { { 3.0 }, { 4.0 } }) --> { { 11 } } */
#include "ops/matmul/check.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  if (!aci_product_ranks(x, a[0].tensor, 2, a[1].tensor, 2, "matmul takes other ranks")) return 0;
  out[0] = x_matmul(x, a[0].tensor, a[1].tensor);
  return 1;
}

AC_OP(mm, .sig = "mm(x: tensor, mat2: tensor) -> tensor", .composed = composed,
      .on_complex = aci_complex_composed);
