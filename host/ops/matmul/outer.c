/* outer: every element of one vector times every one of another.
   x (m), other (n) -> y (m, n), y[i, j] = x[i] * other[j]. Dtypes: any. They promote as in mul.
   gradient: dx = dy other, dother = dy^T x.
   example: accel.tensor({ 1.0, 2.0 }):outer(accel.tensor { 3.0, 4.0 }) --> { { 3, 4 }, { 6, 8 } } */
#include "ops/matmul/check.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  if (!aci_product_ranks(x, a[0].tensor, 1, a[1].tensor, 1, "flatten them, or use einsum"))
    return 0;
  out[0] = x_mul(x, T(x_unsqueeze(x, a[0].tensor, 1)), T(a[1].tensor));
  return 1;
}

AC_OP(outer, .sig = "outer(x: tensor, other: tensor) -> tensor", .composed = composed,
      .alias = "ger", .on_complex = aci_complex_composed);
