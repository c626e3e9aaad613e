/* clamp_max: y = the smaller of x and max, NaN if either is.
   x (any shape), max (a number, or a tensor that broadcasts) -> y
   gradient: as for clamp.
   example: accel.tensor { -2.0, 0.5, 9 }:clamp_max(0) --> { -2, 0, 0 } */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  const ac_operand bound =
      a[1].kind == AC_T_SCALAR ? (ac_operand){NULL, a[1].scalar} : ac_operand_tensor(a[1].tensor);
  out[0] = x_clamp(x, a[0].tensor, NULL, &bound);
  return 1;
}

AC_OP(clamp_max, .sig = "clamp_max(x: tensor, max: operand) -> tensor", .composed = composed,
      .inplace = true);
