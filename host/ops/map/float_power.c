/* float_power: y = x ^ exponent, computed in f64 whatever the dtypes are.
   x, exponent (any shapes that broadcast) -> y (f64)
   gradient: as for pow.
   example: accel.tensor { 2, 3 }:float_power(-1) --> { 0.5, 0.333333 } */
#include "ops/core/op.h"

static ac_operand wide(ac_expr *x, const ac_value *v) {
  if (v->kind == AC_T_SCALAR) return F(aci_scalar_f(v->scalar));
  return T(v->tensor->dtype == AC_F64 ? v->tensor : x_cast(x, v->tensor, AC_F64));
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  if (a[0].kind == AC_T_SCALAR && a[1].kind == AC_T_SCALAR) {
    x->st = AC_FAIL(x->e, INVALID, "needs at least one tensor");
    return 0;
  }
  out[0] = x_pow(x, wide(x, &a[0]), wide(x, &a[1]));
  return 1;
}

AC_OP(float_power, .sig = "float_power(x: operand, exponent: operand) -> tensor",
      .composed = composed);
