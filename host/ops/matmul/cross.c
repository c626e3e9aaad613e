/* cross: the vector product of x and other along dim, which has 3 elements. By default the first dim of 3.
   x, other (shapes that broadcast, as many dims) -> y
   gradient: of the ops it consists of.
   example: accel.cross(accel.tensor { 1, 0, 0 }, accel.tensor { 0, 1, 0 }) --> { 0, 0, 1 } */
#include "ops/reduce/composed.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor, *o = a[1].tensor;
  int64_t d = a[2].kind == AC_T_NONE ? -1 : a[2].i;
  const bool narrow = t->dtype == o->dtype && (t->dtype == AC_BF16 || t->dtype == AC_F16);
  const ac_dtype dt = (ac_dtype)t->dtype;
  char s[128], r[128];
  if (a[2].kind == AC_T_NONE && t->ndim == o->ndim) {
    for (d = 0; d < t->ndim && (t->shape[d] != 3 || o->shape[d] != 3);) d++;
    if (d == t->ndim) d = t->ndim + 1;
  } else {
    d = aci_composed_dim(x, t, d);
    if (d < 0) return 0;
  }
  if (t->ndim != o->ndim || d < 0 || d >= t->ndim || t->shape[d] != 3 || o->shape[d] != 3) {
    x->st = AC_FAIL(x->e, SHAPE,
                    "needs two tensors of as many dims with 3 elements along dim, got %s and %s",
                    aci_shape_str(t->ndim, t->shape, s, sizeof s),
                    aci_shape_str(o->ndim, o->shape, r, sizeof r));
    return 0;
  }
  const int64_t one = -1, two = -2;
  if (narrow) { /* rounded once, at the end */
    t = x_cast(x, t, AC_F32);
    o = x_cast(x, o, AC_F32);
  }
  ac_tensor *first = x_mul(x, T(x_roll(x, t, &one, 1, &d, 1)), T(x_roll(x, o, &two, 1, &d, 1)));
  ac_tensor *last = x_mul(x, T(x_roll(x, t, &two, 1, &d, 1)), T(x_roll(x, o, &one, 1, &d, 1)));
  out[0] = x_sub(x, T(first), T(last), aci_float(1));
  if (narrow) out[0] = x_cast(x, out[0], dt);
  return 1;
}

AC_OP(cross, .sig = "cross(x: tensor, other: tensor, dim: dim?) -> tensor", .composed = composed);
