/* isfinite: y = true if x is neither infinite nor NaN. Always for integers.
   x (any shape) -> y (bool, same shape)
   No gradient.
   example: accel.tensor { 0 / 0, 1.0, math.huge }:isfinite() --> { false, true, false } */
#include "ops/map/map.h"

#define FWD(T, p, x) ACI_BY_INT(x, 1, (x) - (x) == 0)

/* of the parts */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  ac_tensor *re = aci_re(x, a[0].tensor), *im = aci_im(x, a[0].tensor);
  out[0] = x_logical_and(x, T(x_isfinite(x, re)), T(x_isfinite(x, im)));
  return 1;
}

AC_MAP1B(isfinite, FWD, .sig = "isfinite(x: tensor) -> tensor", .on_complex = on_complex);
