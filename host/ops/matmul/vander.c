/* vander: the powers of the elements of x as rows: n columns from the power n - 1 down to 0, with increasing from 0 up.
   x (m) -> y (m, n), n = m if it is not given
   gradient: as for cumprod.
   example: accel.tensor { 1, 2, 3 }:vander() --> { { 1, 1, 1 }, { 4, 2, 1 }, { 9, 3, 1 } }
   example: accel.tensor { 2, 3 }:vander(3, true) --> { { 1, 2, 4 }, { 1, 3, 9 } } */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor;
  const int64_t n = a[1].kind == AC_T_NONE ? t->numel : a[1].i, last = 1;
  char s[128];
  if (t->ndim != 1 || n < 0) {
    x->st = n < 0 ? AC_FAIL(x->e, INVALID, "n must not be negative, got %lld", (long long)n)
                  : AC_FAIL(x->e, SHAPE, "needs one dim, got shape %s",
                            aci_shape_str(t->ndim, t->shape, s, sizeof s));
    return 0;
  }
  if (!ac_dtype_is_float((ac_dtype)t->dtype) && t->dtype != AC_I64) t = x_cast(x, t, AC_I64);
  const int64_t shape[2] = {t == NULL ? 0 : t->numel, n > 0 ? n - 1 : 0};
  ac_tensor *column = x_unsqueeze(x, t, 1);
  ac_tensor *parts[2] = {x_ones_like(x, column, NULL, NULL), x_expand(x, column, shape, 2)};
  if (n == 0) {
    out[0] = x_clone(x, parts[1]);
    return 1;
  }
  ac_tensor *y = x->st == AC_OK ? x_cumprod(x, x_cat(x, parts, 2, 1), 1, NULL) : NULL;
  out[0] = a[2].b ? y : x_flip(x, y, &last, 1);
  return 1;
}

AC_OP(vander, .sig = "vander(x: tensor, n: int?, increasing: bool = false) -> tensor",
      .composed = composed);
