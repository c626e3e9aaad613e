/* isnan: y = true if x is NaN. Never for integers.          x (any shape) -> y (bool, same shape)
   No gradient.
   example: accel.tensor { 0 / 0, 1.0, math.huge }:isnan() --> { true, false, false } */
#include "ops/map/map.h"

#define FWD(T, p, x) ACI_BY_INT(x, 0, (x) != (x))

/* of the parts */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  ac_tensor *re = aci_re(x, a[0].tensor), *im = aci_im(x, a[0].tensor);
  out[0] = x_logical_or(x, T(x_isnan(x, re)), T(x_isnan(x, im)));
  return 1;
}

AC_MAP1B(isnan, FWD, .sig = "isnan(x: tensor) -> tensor", .on_complex = on_complex);
