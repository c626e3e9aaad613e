/* trapz: trapezoid under its older name: the integral of y along dim by the trapezoidal rule.
   y (..., n, ...), x (n) or of shapes that broadcast with y -> z (without dim)
   gradient: of the ops it consists of.
   example: accel.trapz(accel.tensor { 1.0, 2, 4 }) --> 4.5 */
#include "ops/map/map.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_operand dx = F(1);
  if (a[2].kind != AC_T_NONE) dx = aci_value_operand(&a[2]);
  out[0] = x_trapezoid(x, a[0].tensor, a[1].kind == AC_T_NONE ? NULL : a[1].tensor, &dx, a[3].i);
  return 1;
}

AC_OP(trapz, .sig = "trapz(y: tensor, x: tensor?, dx: operand?, dim: dim = -1) -> tensor",
      .composed = composed);
