/* eq: y = x == other, true if x equals other. NaN compares as in IEEE 754.
   x, other (any shapes that broadcast) -> y (bool).          No gradient.
   example: accel.tensor { 1, 2 }:eq(accel.tensor { 1, 3 }) --> { true, false } */
#include "ops/map/map.h"

#define FWD(T, p, x, y) ((x) == (y))

/* both parts */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  const ac_operand p = aci_value_operand(&a[0]), q = aci_value_operand(&a[1]);
  out[0] = x_logical_and(x, T(x_eq(x, aci_re_of(x, p), aci_re_of(x, q))),
                         T(x_eq(x, aci_im_of(x, p), aci_im_of(x, q))));
  return 1;
}

AC_MAP2B(eq, FWD, .sig = "eq(x: operand, other: operand) -> tensor", .inplace = true,
         .copy_back = true, .on_complex = on_complex);
