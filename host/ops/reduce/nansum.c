/* nansum: y = sum of the elements of x that are not NaN, over dim (all dims when none are given).
   x (any shape) -> y (without those dims, or 1 with keepdim). Integers are added as i64. With dtype, in that dtype.
   gradient: dx = dy, 0 where x is NaN.
   example: accel.tensor { 1.0, 0 / 0, 2 }:nansum() --> 3
   example: accel.tensor { { 1.0, 0 / 0 }, { 3, 4 } }:nansum(1) --> { 4, 4 } */
#include "ops/reduce/composed.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor;
  int n;
  const int64_t *dims = aci_composed_dims(&a[1], &n);
  if (ac_dtype_is_float((ac_dtype)t->dtype)) t = x_masked_fill(x, t, x_isnan(x, t), F(0));
  out[0] = x_sum(x, t, dims, n, a[2].b, a[3].kind == AC_T_NONE ? NULL : &a[3].dtype);
  return 1;
}

AC_OP(nansum,
      .sig = "nansum(x: tensor, dim: dims?, keepdim: bool = false, dtype: dtype?) -> tensor",
      .composed = composed);
