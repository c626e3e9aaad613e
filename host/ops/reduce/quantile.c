/* quantile: the value below which the fraction q of x lies: of n elements in ascending order the one at index q (n - 1),
   interpolated between two elements as `interpolation` says. Over all elements, or along dim. NaN where there is one.
   x (any shape) -> y (without dim, or 1 with keepdim). Dtypes: floats.
   gradient: that of the ops it is made of, to the one or two elements that y comes from.
   example: accel.tensor { 4.0, 1, 3, 2 }:quantile(0.5) --> 2.5
   example: accel.tensor({ { 1.0, 2, 4 }, { 3, 9, 5 } }):quantile(0.25, 2, true) --> { { 1.5 }, { 4 } } */
#include <math.h>

#include "ops/index/index.h"

enum { LINEAR, LOWER, HIGHER, MIDPOINT, NEAREST };

static bool check(ac_expr *x, const ac_value *a, int64_t n, bool some) {
  const ac_tensor *t = a[0].tensor;
  char s[128];
  if (!ac_dtype_is_float((ac_dtype)t->dtype))
    x->st = AC_FAIL(x->e, DTYPE, "needs a float tensor, got %s; cast it first", ac_dtype_name((ac_dtype)t->dtype));
  else if (!(a[1].f >= 0 && a[1].f <= 1))
    x->st = AC_FAIL(x->e, INVALID, "q must lie between 0 and 1, got %g", a[1].f);
  else if (n == 0 && some)
    x->st = AC_FAIL(x->e, SHAPE, "nothing to choose from in a tensor of shape %s",
                    aci_shape_str(t->ndim, t->shape, s, sizeof s));
  return x->st == AC_OK;
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor;
  const ac_dtype dt = (ac_dtype)t->dtype;
  const int64_t row = -1;
  const int rank = t->ndim;
  const bool all = a[2].kind == AC_T_NONE, narrow = dt == AC_BF16 || dt == AC_F16; /* rounded once, at the end */
  const int nd = rank > 0 && !all ? rank : 1;
  const int64_t d = all ? 0 : a[2].i < 0 ? a[2].i + nd : a[2].i;
  if (d < 0 || d >= nd) {
    x_sort(x, t, a[2].i, false, false, NULL); /* says what is wrong with dim */
    return 0;
  }
  const int64_t n = rank == 0 ? 1 : all ? t->numel : t->shape[d];
  if (!check(x, a, n, all || t->numel == 0)) return 0;
  if (narrow) t = x_cast(x, t, AC_F32);
  if (all || rank == 0) t = x_reshape(x, t, &row, 1);
  const double position = a[1].f * (double)(n - 1);
  int64_t lo = (int64_t)position, hi = lo + (position > (double)lo);
  double w = position - (double)lo;
  switch (a[4].i) {
    case LOWER: w = 0; break;
    case HIGHER: w = w > 0; break;
    case MIDPOINT: w = w > 0 ? 0.5 : 0; break;
    case NEAREST: w = nearbyint(position) > (double)lo; break;
    default: break;
  }
  t = x_sort(x, t, d, false, false, NULL);
  ac_tensor *last = x_narrow(x, t, d, n - 1, 1), *y = x_narrow(x, t, d, w == 1 ? hi : lo, 1);
  if (w > 0 && w < 1) y = x_lerp(x, y, x_narrow(x, t, d, hi, 1), F(w));
  y = x_where(x, x_isnan(x, last), T(last), T(y));
  if (!a[3].b || rank == 0) {
    y = x_squeeze(x, y, &d, 1);
  } else if (all) {
    int64_t ones[AC_MAX_DIMS];
    for (int i = 0; i < rank; i++) ones[i] = 1;
    y = x_reshape(x, y, ones, rank);
  }
  out[0] = narrow ? x_cast(x, y, dt) : y;
  return 1;
}

AC_OP(quantile,
      .sig = "quantile(x: tensor, q: float, dim: dim?, keepdim: bool = false, "
             "interpolation: enum(linear|lower|higher|midpoint|nearest) = linear) -> tensor",
      .composed = composed);
