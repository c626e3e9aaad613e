/* rsub: y = other - alpha x, sub with its operands exchanged.
   x, other (any shapes that broadcast) -> y
   gradient: as for sub.
   example: accel.tensor { 1, 2 }:rsub(10) --> { 9, 8 }
   example: accel.tensor { 1, 2 }:rsub(10, { alpha = 2 }) --> { 8, 6 } */
#include "ops/map/map.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  out[0] = x_sub(x, aci_value_operand(&a[1]), T(a[0].tensor), a[2].scalar);
  return 1;
}

AC_OP(rsub, .sig = "rsub(x: tensor, other: operand, alpha: scalar = 1) -> tensor",
      .composed = composed);
