/* isclose: y = true if |x - other| <= atol + rtol |other|, or if both are the same infinity, or, with equal_nan,
   both are NaN.          x, other (any shapes that broadcast) -> y (bool).          No gradient.
   example: accel.tensor { 1.0, 2.0 }:isclose(accel.tensor { 1.0000001, 2.1 }) --> { true, false } */
#include "ops/core/op.h"

static int plain(ac_expr *e, const ac_value *a, ac_tensor **out) {
  ac_tensor *x = a[0].tensor, *y = a[1].tensor;
  /* a type that holds differences */
  if (!aci_has_grad((ac_dtype)x->dtype)) x = x_cast(e, x, AC_I64);
  if (!aci_has_grad((ac_dtype)y->dtype)) y = x_cast(e, y, AC_I64);
  if (x == NULL || y == NULL) return 0;
  if (!(a[2].f >= 0) || !(a[3].f >= 0)) {
    e->st = AC_FAIL(e->e, INVALID, "rtol and atol must not be below zero, got %g and %g", a[2].f,
                    a[3].f);
    return 0;
  }
  ac_tensor *off = x_abs(e, x_sub(e, T(x), T(y), aci_float(1)));
  ac_tensor *may = x_add(e, T(x_mul(e, T(x_abs(e, y)), F(a[2].f))), F(a[3].f), aci_float(1));
  ac_tensor *near = x_logical_and(e, T(x_le(e, T(off), T(may))), T(x_isfinite(e, off)));
  out[0] = x_logical_or(e, T(near), T(x_eq(e, T(x), T(y))));
  if (a[4].b)
    out[0] = x_logical_or(e, T(out[0]), T(x_logical_and(e, T(x_isnan(e, x)), T(x_isnan(e, y)))));
  return 1;
}

AC_OP(
    isclose,
    .sig =
        "isclose(x: tensor, other: tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = false) "
        "-> tensor",
    .composed = plain, .nondiff = true, .on_complex = aci_complex_composed);
