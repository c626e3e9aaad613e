/* nanmean: y = mean of the elements of x that are not NaN, over dim (all dims when none are given). NaN if there are none.
   x (floating point, any shape) -> y (without those dims, or 1 with keepdim). With dtype, in that dtype.
   gradient: dx = dy / (number of elements that are not NaN), 0 where x is NaN.
   example: accel.tensor { 1.0, 0 / 0, 2 }:nanmean() --> 1.5
   example: accel.tensor { { 1.0, 0 / 0 }, { 3, 4 } }:nanmean(1) --> { 2, 4 } */
#include "ops/reduce/composed.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor;
  const ac_dtype *dt = a[3].kind == AC_T_NONE ? NULL : &a[3].dtype;
  int n;
  const int64_t *dims = aci_composed_dims(&a[1], &n);
  if (!aci_composed_float(x, t)) return 0;
  ac_tensor *some = x_logical_not(x, x_isnan(x, t));
  ac_tensor *sum = x_nansum(x, t, dims, n, a[2].b, dt);
  out[0] = x_div(x, T(sum), T(x_sum(x, some, dims, n, a[2].b, NULL)));
  return 1;
}

AC_OP(nanmean,
      .sig = "nanmean(x: tensor, dim: dims?, keepdim: bool = false, dtype: dtype?) -> tensor",
      .composed = composed);
