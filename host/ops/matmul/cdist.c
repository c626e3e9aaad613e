/* cdist: the p-norm distance of every row of x1 to every row of x2.
   x1 (..., r, m), x2 (..., s, m), leading dims broadcast
   -> y (..., r, s), y[i, j] = |x1[i] - x2[j]|_p. Dtypes: floats.
   All differences (..., r, s, m) are held at once, so that distances of rows close together keep their digits.
   gradient: as for sub and norm. 0 if two rows are equal.
   example: accel.cdist(accel.tensor { { 0.0, 0 } }, accel.tensor { { 3.0, 4 }, { 1, 0 } }) --> { { 5, 1 } }
   example: accel.cdist(accel.tensor { { 0.0, 0 } }, accel.tensor { { 3.0, 4 } }, 1) --> { { 7 } } */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *p = a[0].tensor, *q = a[1].tensor;
  const ac_dtype dt = (ac_dtype)p->dtype;
  /* rounded once, at the end */
  const bool narrow = p->dtype == q->dtype && (dt == AC_BF16 || dt == AC_F16);
  const int64_t last = -1;
  char s[128], t[128];
  if (p->ndim < 2 || q->ndim < 2 || p->shape[p->ndim - 1] != q->shape[q->ndim - 1]) {
    x->st = AC_FAIL(x->e, SHAPE, "needs two lists of rows of one length, got shapes %s and %s",
                    aci_shape_str(p->ndim, p->shape, s, sizeof s),
                    aci_shape_str(q->ndim, q->shape, t, sizeof t));
    return 0;
  }
  if (!(a[2].f >= 0)) {
    x->st = AC_FAIL(x->e, INVALID, "p must not be negative, got %g", a[2].f);
    return 0;
  }
  if (!ac_dtype_is_float(dt) || !ac_dtype_is_float((ac_dtype)q->dtype)) {
    x->st = AC_FAIL(x->e, DTYPE, "needs float tensors, got %s and %s", ac_dtype_name(dt),
                    ac_dtype_name((ac_dtype)q->dtype));
    return 0;
  }
  if (narrow) {
    p = x_cast(x, p, AC_F32);
    q = x_cast(x, q, AC_F32);
  }
  ac_tensor *d = x_sub(x, T(x_unsqueeze(x, p, -2)), T(x_unsqueeze(x, q, -3)), aci_float(1));
  ac_tensor *y = x_norm(x, d, aci_float(a[2].f), &last, 1, false);
  out[0] = narrow ? x_cast(x, y, dt) : y;
  return 1;
}

AC_OP(cdist, .sig = "cdist(x1: tensor, x2: tensor, p: float = 2) -> tensor", .composed = composed);
