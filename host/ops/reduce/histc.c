/* histc: how many elements of x lie in each of `bins` intervals of equal length from min to max, the last one with its end. Elements
   outside and NaN are not counted. If min equals max, the smallest and the largest element are taken.
   x (floating point, any shape) -> y (bins, dtype of x)          No gradient.
   example: accel.tensor { 1.0, 2, 1 }:histc { bins = 4, min = 0, max = 3 } --> { 0, 2, 1, 0 } */
#include <math.h>

#include "ops/reduce/composed.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor;
  const int64_t bins = a[1].i, row = -1;
  const double lo = aci_scalar_f(a[2].scalar), hi = aci_scalar_f(a[3].scalar);
  if (!aci_composed_float(x, t)) return 0;
  if (bins < 1 || lo > hi || isinf(lo) || isinf(hi) || isnan(lo) || isnan(hi)) {
    x->st = bins < 1 ? AC_FAIL(x->e, INVALID, "bins must be at least 1, got %lld", (long long)bins)
                     : AC_FAIL(x->e, INVALID, "needs finite min <= max, got %g and %g", lo, hi);
    return 0;
  }
  const ac_dtype dt = (ac_dtype)t->dtype, wide = dt == AC_F64 ? AC_F64 : AC_F32;
  ac_tensor *v = x_reshape(x, x_cast(x, t, wide), &row, 1), *least = NULL, *most = NULL;
  ac_tensor *none = x_sum(x, v, NULL, 0, false, NULL); /* of rank 0, for its device */
  if (t->numel > 0 && lo == hi) {
    least = x_amin(x, v, NULL, 0, false);
    most = x_amax(x, v, NULL, 0, false);
    ac_tensor *equal = x_eq(x, T(least), T(most));
    least = x_where(x, equal, T(x_sub(x, T(least), F(1), aci_float(1))), T(least));
    most = x_where(x, equal, T(x_add(x, T(most), F(1), aci_float(1))), T(most));
  } else {
    least = x_full_like(x, none, aci_float(lo), NULL, NULL);
    most = x_full_like(x, none, aci_float(hi), NULL, NULL);
  }
  ac_tensor *inside = x_logical_and(x, T(x_ge(x, T(v), T(least))), T(x_le(x, T(v), T(most))));
  ac_tensor *share = x_mul(x, T(x_sub(x, T(v), T(least), aci_float(1))), F((double)bins));
  share = x_div(x, T(share), T(x_sub(x, T(most), T(least), aci_float(1))));
  const ac_operand first = ac_operand_int(0), last = ac_operand_int(bins - 1);
  share = x_where(x, inside, T(share), F((double)bins + 0.5));
  ac_tensor *at = x_cast(x, x_floor(x, share), AC_I64); /* `bins`: not counted */
  at = x_clamp(x, at, &first, NULL);
  at = x_where(x, inside, T(x_clamp(x, at, NULL, &last)), ac_operand_int(bins));
  ac_tensor *count = x_bincount(x, at, NULL, bins + 1);
  out[0] = x_cast(x, x_narrow(x, count, 0, 0, bins), dt);
  return 1;
}

AC_OP(histc, .sig = "histc(x: tensor, bins: int = 100, min: scalar = 0, max: scalar = 0) -> tensor",
      .composed = composed, .nondiff = true);
