/* fmin: y = the smaller of x and other, or the other one if one of them is NaN (minimum gives NaN then).
   x, other (any shapes that broadcast) -> y
   gradient: dy goes to the operand that is taken, to x if they are equal, summed over the dims that were broadcast.
   example: accel.tensor { 1.0, 0 / 0 }:fmin(accel.tensor { 3.0, 5 }) --> { 1, 5 } */
#include "ops/map/map.h"

#define FWD(T, p, x, y) (((x) <= (y)) | ((y) != (y)) ? (x) : (y))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_operand a = aci_grad_operand(g, 0), b = aci_grad_operand(g, 1);
  ac_tensor *first = x_le(x, a, b);
  if (b.tensor != NULL) first = x_logical_or(x, T(first), T(x_isnan(x, b.tensor)));
  else if (isnan(aci_scalar_f(b.scalar))) first = x_ones_like(x, first, NULL, NULL);
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, x_where(x, first, T(g->dout[0]), F(0))));
  if (ac_grad_needs(g, 1))
    ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, x_where(x, first, F(0), T(g->dout[0]))));
}

AC_MAP2N(fmin, FWD, .sig = "fmin(x: operand, other: operand) -> tensor", .grad = grad,
         .save = AC_SAVE_IN(0) | AC_SAVE_IN(1));
