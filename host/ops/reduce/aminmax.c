/* aminmax: the smallest and the largest element of x, over all of it or along dim. NaN if there is one.
   x (any shape) -> min, max (without dim, or 1 with keepdim)
   gradient: as for amin and amax.
   example: accel.tensor { 3, 1, 2 }:aminmax() --> 1, 3
   example: accel.tensor { { 3, 1 }, { 2, 5 } }:aminmax { dim = 2 } --> { 1, 2 }, { 3, 5 } */
#include "ops/reduce/composed.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  const int64_t *dim = a[1].kind == AC_T_NONE ? NULL : &a[1].i;
  out[0] = x_amin(x, a[0].tensor, dim, dim != NULL, a[2].b);
  out[1] = x_amax(x, a[0].tensor, dim, dim != NULL, a[2].b);
  return 2;
}

AC_OP(aminmax,
      .sig = "aminmax(x: tensor, dim: dim?, keepdim: bool = false) -> (min: tensor, max: tensor)",
      .composed = composed);
