/* ne: y = x != other, true if x differs from other. NaN compares as in IEEE 754.
   x, other (any shapes that broadcast) -> y (bool).          No gradient.
   example: accel.tensor { 1, 2 }:ne(accel.tensor { 1, 3 }) --> { false, true } */
#include "ops/map/map.h"

#define FWD(T, p, x, y) ((x) != (y))

/* either part */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  const ac_operand p = aci_value_operand(&a[0]), q = aci_value_operand(&a[1]);
  out[0] = x_logical_or(x, T(x_ne(x, aci_re_of(x, p), aci_re_of(x, q))),
                        T(x_ne(x, aci_im_of(x, p), aci_im_of(x, q))));
  return 1;
}

AC_MAP2B(ne, FWD, .sig = "ne(x: operand, other: operand) -> tensor", .alias = "not_equal",
         .inplace = true, .copy_back = true, .on_complex = on_complex);
