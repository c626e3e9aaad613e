/* corrcoef: the correlation coefficients of the rows of x, each a variable, over its columns, cut to -1 .. 1.
   x (variables, n) or (n) -> y (variables, variables) or ()
   gradient: of the ops it consists of.
   example: accel.tensor { { 0.0, 1, 2 }, { 2, 1, 0 } }:corrcoef() --> { { 1, -1 }, { -1, 1 } } */
#include "ops/reduce/composed.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  const int64_t column[2] = {-1, 1}, row[2] = {1, -1};
  const ac_operand low = ac_operand_float(-1), high = ac_operand_float(1);
  ac_tensor *t = a[0].tensor;
  const ac_dtype dt = (ac_dtype)t->dtype;
  const bool narrow = dt == AC_BF16 || dt == AC_F16; /* rounded once, at the end */
  ac_tensor *c = x_cov(x, narrow ? x_cast(x, t, AC_F32) : t, 1, NULL, NULL);
  if (c == NULL) return 0;
  if (c->ndim == 0) {
    out[0] = x_div(x, T(c), T(c));
    if (narrow) out[0] = x_cast(x, out[0], dt);
    return 1;
  }
  ac_tensor *std = x_sqrt(x, x_diagonal(x, c, 0, 0, 1));
  c = x_div(x, T(c), T(x_reshape(x, std, column, 2)));
  out[0] = x_clamp(x, x_div(x, T(c), T(x_reshape(x, std, row, 2))), &low, &high);
  if (narrow) out[0] = x_cast(x, out[0], dt);
  return 1;
}

AC_OP(corrcoef, .sig = "corrcoef(x: tensor) -> tensor", .composed = composed);
