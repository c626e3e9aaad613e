/* std_mean: the standard deviation of x over dim (all dims when none are given), as std gives it, and the mean.
   x (floating point, any shape) -> std, mean (without those dims, or 1 with keepdim)
   gradient: as for std and mean.
   example: accel.tensor { 1.0, 2.0, 4.0, 5.0 }:std_mean() --> 1.825742, 3
   example: accel.tensor { { 1.0, 3.0 }, { 2.0, 8.0 } }:std_mean(1, { correction = 0 }) --> { 0.5, 2.5 }, { 1.5, 5.5 } */
#include "ops/reduce/composed.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  int n;
  const int64_t *dims = aci_composed_dims(&a[1], &n);
  const ac_scalar *correction = a[3].kind == AC_T_NONE ? NULL : &a[3].scalar;
  const bool *unbiased = a[4].kind == AC_T_NONE ? NULL : &a[4].b;
  out[0] = x_std(x, a[0].tensor, dims, n, a[2].b, correction, unbiased);
  out[1] = x_mean(x, a[0].tensor, dims, n, a[2].b, NULL);
  return 2;
}

AC_OP(std_mean,
      .sig = "std_mean(x: tensor, dim: dims?, keepdim: bool = false, correction: scalar?, "
             "unbiased: bool?) -> (std: tensor, mean: tensor)",
      .composed = composed);
