/* mvlgamma: y = the logarithm of the multivariate gamma function of dimension p: p (p - 1) / 4 ln pi plus the sum of
   lgamma(x - j / 2) over j = 0 .. p - 1.
   x (any shape, more than (p - 1) / 2; integers are computed in f32) -> y (same shape)
   gradient: of the ops it consists of.
   example: accel.tensor { 3.0, 5 }:mvlgamma(2) --> { 1.550195, 6.204155 } */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  const int64_t p = a[1].i;
  ac_tensor *t = a[0].tensor, *sum = NULL;
  if (p < 1 || p > 1024) {
    x->st = AC_FAIL(x->e, INVALID, "p must be 1 .. 1024, got %lld", (long long)p);
    return 0;
  }
  if (!ac_dtype_is_float((ac_dtype)t->dtype)) t = x_cast(x, t, AC_F32);
  for (int64_t j = 0; j < p && x->st == AC_OK; j++) {
    ac_tensor *part = x_lgamma(x, x_sub(x, T(t), F(0.5 * (double)j), aci_float(1)));
    sum = j == 0 ? part : x_add(x, T(sum), T(part), aci_float(1));
  }
  out[0] = x_add(x, T(sum), F((double)(p * (p - 1)) * 0.28618247146235004), aci_float(1));
  return 1;
}

AC_OP(mvlgamma, .sig = "mvlgamma(x: tensor, p: int) -> tensor", .composed = composed);
