/* trapezoid: the integral of y along dim by the trapezoidal rule, at points x or at distance dx.
   y (..., n, ...), x (n) or of shapes that broadcast with y -> z (without dim)
   gradient: of the ops it consists of.
   example: accel.tensor { 1.0, 2, 4 }:trapezoid() --> 4.5
   example: accel.trapezoid(accel.tensor { 1.0, 2, 4 }, accel.tensor { 0.0, 1, 4 }) --> 10.5 */
#include "ops/reduce/trapezoid.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  int64_t d;
  ac_tensor *area = aci_trapezoids(x, a, &d);
  if (area != NULL) out[0] = x_sum(x, area, &d, 1, false, NULL);
  return 1;
}

AC_OP(trapezoid, .sig = "trapezoid(y: tensor, x: tensor?, dx: operand?, dim: dim = -1) -> tensor",
      .composed = composed);
