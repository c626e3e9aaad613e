/* cumulative_trapezoid: the integrals of y along dim from the first point to each of the others, by the trapezoidal rule, at
   points x or at distance dx.
   y (..., n, ...), x (n) or of shapes that broadcast with y -> z (..., n - 1, ...)
   gradient: of the ops it consists of.
   example: accel.tensor { 1.0, 2, 4 }:cumulative_trapezoid() --> { 1.5, 4.5 } */
#include "ops/reduce/trapezoid.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  int64_t d;
  ac_tensor *area = aci_trapezoids(x, a, &d);
  if (area != NULL) out[0] = x_cumsum(x, area, d, NULL);
  return 1;
}

AC_OP(cumulative_trapezoid,
      .sig = "cumulative_trapezoid(y: tensor, x: tensor?, dx: operand?, dim: dim = -1) -> tensor",
      .composed = composed);
