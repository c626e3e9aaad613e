/* nanquantile: as quantile, of the elements of x that are not NaN. NaN if there are none.
   x (any shape), q (a number, or a tensor of x's dtype and at most one dim) -> y (without dim, or 1 with keepdim.
   Several q give their number as the first dim). Dtypes: floats.
   gradient: as for its component ops, to the one or two elements that y comes from.
   example: accel.tensor { 4.0, 0 / 0, 1, 3 }:nanquantile(0.5) --> 3
   example: accel.tensor({ { 1.0, 2, 0 / 0 }, { 3, 9, 5 } }):nanquantile(0.5, 2) --> { 1.5, 5 } */
#include "ops/reduce/quantile.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  return aci_quantiles(x, a, true, out);
}

AC_OP(nanquantile,
      .sig = "nanquantile(x: tensor, q: operand, dim: dim?, keepdim: bool = false, "
             "interpolation: enum(linear|lower|higher|midpoint|nearest) = linear) -> tensor",
      .composed = composed);
