/* nanmedian: the middle one of the elements of x that are not NaN in ascending order, the lower one of two. With dim, that of each
   line along it, and its index (from 0). NaN if all are NaN.
   x (any shape) -> values () | values, indices (without dim, or 1 with keepdim)
   gradient: dx = dvalues at the chosen element, 0 elsewhere.
   example: accel.tensor { 4, 0 / 0, 3, 2 }:nanmedian() --> 3
   example: accel.tensor { { 1, 5, 0 / 0 }, { 6, 2, 4 } }:nanmedian(2) --> { 1, 4 }, { 0, 2 } */
#include <math.h>

#include "ops/reduce/composed.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor, *at = NULL;
  const int64_t row = -1;
  const bool all = a[1].kind == AC_T_NONE, drop = t->ndim > 0 && !a[2].b;
  if (all) t = x_reshape(x, t, &row, 1);
  const int64_t d = t == NULL ? -1 : all ? 0 : aci_composed_dim(x, t, a[1].i);
  if (d < 0) return 0;
  if (!ac_dtype_is_float((ac_dtype)t->dtype)) {
    out[0] = x_median(x, t, all ? NULL : &a[1].i, a[2].b && !all, &out[1]);
    return all ? 1 : 2;
  }
  if ((t->ndim > 0 ? t->shape[d] : 1) == 0) {
    if (all) {
      out[0] = x_sum(x, x_full_like(x, t, aci_float(NAN), NULL, NULL), NULL, 0, false, NULL);
      out[0] = x_full_like(x, out[0], aci_float(NAN), NULL, NULL);
      return 1;
    }
    x->st = AC_FAIL(x->e, SHAPE, "nothing to choose from: dim has no elements");
    return 0;
  }
  ac_tensor *s = x_sort(x, t, d, false, true, &at); /* NaN last */
  const ac_operand low = ac_operand_int(0);
  ac_tensor *n = x_sum(x, x_logical_not(x, x_isnan(x, s)), &d, 1, true, NULL);
  ac_tensor *middle =
      x_floor_divide(x, T(x_sub(x, T(n), ac_operand_int(1), aci_float(1))), ac_operand_int(2));
  middle = x_clamp(x, middle, &low, NULL);
  out[0] = x_gather(x, s, d, middle);
  if (all) {
    out[0] = x_reshape(x, out[0], NULL, 0);
    return 1;
  }
  out[1] = x_gather(x, at, d, middle);
  if (drop)
    for (int i = 0; i < 2; i++) out[i] = x_squeeze(x, out[i], &d, 1);
  return 2;
}

AC_OP(nanmedian,
      .sig = "nanmedian(x: tensor, dim: dim?, keepdim: bool = false) -> (values: tensor, indices: "
             "tensor?)",
      .composed = composed);
