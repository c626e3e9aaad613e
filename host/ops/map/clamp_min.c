/* clamp_min: y = the larger of x and min, NaN if either is.
   x (any shape), min (a number, or a tensor that broadcasts) -> y
   gradient: as for clamp.
   example: accel.tensor { -2.0, 0.5, 9 }:clamp_min(0) --> { 0, 0.5, 9 } */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  const ac_operand bound =
      a[1].kind == AC_T_SCALAR ? (ac_operand){NULL, a[1].scalar} : ac_operand_tensor(a[1].tensor);
  out[0] = x_clamp(x, a[0].tensor, &bound, NULL);
  return 1;
}

AC_OP(clamp_min, .sig = "clamp_min(x: tensor, min: operand) -> tensor", .composed = composed,
      .inplace = true);
