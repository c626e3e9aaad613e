/* renorm: x with each slice along dim whose p-norm is above maxnorm scaled down to it.
   x (floating point, at least 2 dims) -> y (same shape)
   gradient: of the ops it consists of.
   example: accel.tensor { { 3.0, 4 }, { 0.3, 0.4 } }:renorm(2, 1, 1) --> { { 0.6, 0.8 }, { 0.3, 0.4 } } */
#include "ops/reduce/composed.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor;
  const double p = aci_scalar_f(a[1].scalar), most = aci_scalar_f(a[3].scalar);
  int64_t others[AC_MAX_DIMS];
  int n = 0;
  if (!aci_composed_float(x, t)) return 0;
  const int64_t d = aci_composed_dim(x, t, a[2].i);
  if (d < 0) return 0;
  if (t->ndim < 2 || !(p > 0) || !(most >= 0)) {
    x->st = t->ndim < 2
                ? AC_FAIL(x->e, SHAPE, "needs at least 2 dims, got %d", t->ndim)
                : AC_FAIL(x->e, INVALID, "needs p > 0 and maxnorm >= 0, got %g and %g", p, most);
    return 0;
  }
  for (int i = 0; i < t->ndim; i++)
    if (i != d) others[n++] = i;
  const ac_dtype dt = (ac_dtype)t->dtype, wide = dt == AC_F64 ? AC_F64 : AC_F32;
  ac_tensor *norm = x_norm(x, dt == wide ? t : x_cast(x, t, wide), a[1].scalar, others, n, true);
  ac_tensor *scale = x_div(x, F(most), T(x_add(x, T(norm), F(1e-7), aci_float(1))));
  scale = x_where(x, x_gt(x, T(norm), F(most)), T(scale), F(1));
  out[0] = x_mul(x, T(t), T(dt == wide ? scale : x_cast(x, scale, dt)));
  return 1;
}

AC_OP(renorm, .sig = "renorm(x: tensor, p: scalar, dim: dim, maxnorm: scalar) -> tensor",
      .composed = composed);
