/* quantile: the value below which the fraction q of x lies. Of n elements in ascending order it is the one at
   index q (n - 1). `interpolation` selects the interpolation between two elements. Over all elements, or along
   dim. NaN if there is one.
   x (any shape), q (a number, or a tensor of x's dtype and at most one dim) -> y (without dim, or 1 with keepdim.
   Several q give their number as the first dim). Dtypes: floats.
   gradient: as for its component ops, to the one or two elements that y comes from.
   example: accel.tensor { 4.0, 1, 3, 2 }:quantile(0.5) --> 2.5
   example: accel.arange(5.0):quantile(accel.tensor { 0.25, 0.5 }) --> { 1, 2 }
   example: accel.tensor({ { 1.0, 2, 4 }, { 3, 9, 5 } }):quantile(0.25, 2, true) --> { { 1.5 }, { 4 } } */
#include <math.h>

#include "ops/index/index.h"
#include "ops/reduce/quantile.h"

enum { LINEAR, LOWER, HIGHER, MIDPOINT, NEAREST };

static double number(const ac_value *q) { return aci_scalar_f(q->scalar); }

static bool check(ac_expr *x, const ac_value *a, int64_t n, bool some) {
  const ac_tensor *t = a[0].tensor;
  char s[128];
  if (!ac_dtype_is_float((ac_dtype)t->dtype))
    x->st = AC_FAIL(x->e, DTYPE, "needs a float tensor, got %s; cast it first",
                    ac_dtype_name((ac_dtype)t->dtype));
  else if (a[1].kind == AC_T_TENSOR && (a[1].tensor->ndim > 1 || a[1].tensor->dtype != t->dtype))
    x->st = AC_FAIL(
        x->e, INVALID,
        "q must be a number, or a tensor of dtype %s with at most one dim; got %s of shape %s",
        ac_dtype_name((ac_dtype)t->dtype), ac_dtype_name((ac_dtype)a[1].tensor->dtype),
        aci_shape_str(a[1].tensor->ndim, a[1].tensor->shape, s, sizeof s));
  else if (a[1].kind == AC_T_SCALAR && !(number(&a[1]) >= 0 && number(&a[1]) <= 1))
    x->st = AC_FAIL(x->e, INVALID, "q must lie between 0 and 1, got %g", number(&a[1]));
  else if (n == 0 && some)
    x->st = AC_FAIL(x->e, SHAPE, "nothing to choose from in a tensor of shape %s",
                    aci_shape_str(t->ndim, t->shape, s, sizeof s));
  return x->st == AC_OK;
}

/* Quantile q of the sorted t along d, with extent 1 there. */
static ac_tensor *one(ac_expr *x, ac_tensor *t, double q, int64_t d, int64_t interpolation) {
  if (t == NULL) return NULL;
  const double position = q * (double)(t->shape[d] - 1);
  const int64_t lo = (int64_t)position, hi = lo + (position > (double)lo);
  double w = position - (double)lo;
  switch (interpolation) {
    case LOWER: w = 0; break;
    case HIGHER: w = w > 0; break;
    case MIDPOINT: w = w > 0 ? 0.5 : 0; break;
    case NEAREST: w = nearbyint(position) > (double)lo; break;
    default: break;
  }
  ac_tensor *y = x_narrow(x, t, d, w == 1 ? hi : lo, 1);
  return w > 0 && w < 1 ? x_lerp(x, y, x_narrow(x, t, d, hi, 1), F(w)) : y;
}

/* The weight of the upper neighbour of a position. */
static ac_tensor *between(ac_expr *x, ac_tensor *position, ac_tensor *floor,
                          int64_t interpolation) {
  if (position == NULL) return NULL;
  const ac_dtype wide = (ac_dtype)position->dtype;
  ac_tensor *w = x_sub(x, T(position), T(floor), aci_float(1));
  switch (interpolation) {
    case LOWER: w = x_zeros_like(x, w, NULL, NULL); break;
    case HIGHER: w = x_cast(x, x_gt(x, T(w), F(0)), wide); break;
    case MIDPOINT: w = x_mul(x, T(x_cast(x, x_gt(x, T(w), F(0)), wide)), F(0.5)); break;
    case NEAREST: w = x_cast(x, x_gt(x, T(x_round(x, position, 0)), T(floor)), wide); break;
    default: break;
  }
  return w;
}

/* The quantiles q, a tensor, of the sorted t along d. Their number replaces the extent. A q that is
   not in 0 .. 1 is a position outside of the line, which index_select refuses. */
static ac_tensor *several(ac_expr *x, ac_tensor *t, ac_tensor *q, int64_t d,
                          int64_t interpolation) {
  if (t == NULL) return NULL;
  const ac_dtype wide = (ac_dtype)t->dtype;
  const int64_t row = -1, n = t->shape[d];
  q = x_cast(x, x_reshape(x, q, &row, 1), wide);
  ac_tensor *position = x_mul(x, T(q), F((double)(n - 1))), *floor = x_floor(x, position);
  ac_tensor *w = between(x, position, floor, interpolation);
  ac_tensor *from = x_index_select(x, t, d, x_cast(x, floor, AC_I64));
  ac_tensor *to = x_index_select(x, t, d, x_cast(x, x_ceil(x, position), AC_I64));
  if (x->st == AC_INDEX) x->st = AC_FAIL(x->e, INVALID, "every q must lie between 0 and 1");
  if (x->st != AC_OK) return NULL;
  int64_t shape[AC_MAX_DIMS];
  for (int i = 0; i < t->ndim; i++) shape[i] = i == d ? w->numel : 1;
  return x_lerp(x, from, to, T(x_reshape(x, w, shape, t->ndim)));
}

/* The quantiles q of the elements before the NaN at the end of each line of the sorted t. */
static ac_tensor *skipping(ac_expr *x, ac_tensor *t, const ac_value *q, int64_t d,
                           int64_t interpolation) {
  if (t == NULL) return NULL;
  const ac_dtype wide = (ac_dtype)t->dtype;
  const ac_operand low = ac_operand_float(0);
  ac_tensor *n = x_sum(x, x_logical_not(x, x_isnan(x, t)), &d, 1, true, NULL);
  n = x_clamp(x, x_sub(x, T(x_cast(x, n, wide)), F(1), aci_float(1)), &low, NULL);
  ac_operand at = F(q->kind == AC_T_SCALAR ? number(q) : 0);
  if (q->kind == AC_T_TENSOR) { /* along d */
    int64_t shape[AC_MAX_DIMS];
    for (int i = 0; i < t->ndim; i++) shape[i] = i == d ? q->tensor->numel : 1;
    at = T(x_reshape(x, q->tensor->dtype == wide ? q->tensor : x_cast(x, q->tensor, wide), shape,
                     t->ndim));
  }
  ac_tensor *position = x_mul(x, T(n), at), *floor = x_floor(x, position);
  ac_tensor *w = between(x, position, floor, interpolation);
  ac_tensor *from = x_gather(x, t, d, x_cast(x, floor, AC_I64));
  ac_tensor *to = x_gather(x, t, d, x_cast(x, x_ceil(x, position), AC_I64));
  if (x->st == AC_INDEX) x->st = AC_FAIL(x->e, INVALID, "every q must lie between 0 and 1");
  return x_lerp(x, from, to, T(w));
}

/* Moves the quantiles of dim d to the front. A single one of rank 0 is removed. keep: the reduced
 * dims stay with extent 1. */
static ac_tensor *leading(ac_expr *x, ac_tensor *y, bool single, int64_t d, int rank, bool keep,
                          bool all) {
  const int64_t front = 0;
  const int64_t n = y->shape[d];
  int64_t shape[AC_MAX_DIMS];
  int nd = 0;
  y = x_movedim(x, y, &d, 1, &front, 1);
  if (y == NULL) return NULL;
  if (!single) shape[nd++] = n;
  if (all) {
    for (int i = 0; keep && i < rank; i++) shape[nd++] = 1;
  } else {
    for (int i = 1; i < y->ndim; i++) {
      if (keep && i - 1 == d) shape[nd++] = 1;
      shape[nd++] = y->shape[i];
    }
    if (keep && d == y->ndim - 1) shape[nd++] = 1;
  }
  return x_reshape(x, y, shape, nd);
}

int aci_quantiles(ac_expr *x, const ac_value *a, bool skip, ac_tensor **out) {
  ac_tensor *t = a[0].tensor;
  const ac_dtype dt = (ac_dtype)t->dtype;
  const int64_t row = -1;
  const int rank = t->ndim;
  /* rounded once, at the end */
  const bool all = a[2].kind == AC_T_NONE, narrow = dt == AC_BF16 || dt == AC_F16;
  const int nd = rank > 0 && !all ? rank : 1;
  const int64_t d = all ? 0 : a[2].i < 0 ? a[2].i + nd : a[2].i;
  if (d < 0 || d >= nd) {
    x_sort(x, t, a[2].i, false, false, NULL); /* reports a fault of dim */
    return 0;
  }
  const int64_t n = rank == 0 ? 1 : all ? t->numel : t->shape[d];
  if (!check(x, a, n, all || t->numel == 0)) return 0;
  if (narrow) t = x_cast(x, t, AC_F32);
  if (all || rank == 0) t = x_reshape(x, t, &row, 1);
  t = x_sort(x, t, d, false, false, NULL);
  ac_tensor *last = x_narrow(x, t, d, n - 1, 1);
  ac_tensor *y = skip                       ? skipping(x, t, &a[1], d, a[4].i)
                 : a[1].kind == AC_T_TENSOR ? several(x, t, a[1].tensor, d, a[4].i)
                                            : one(x, t, number(&a[1]), d, a[4].i);
  if (!skip) y = x_where(x, x_isnan(x, last), T(last), T(y));
  if (a[1].kind == AC_T_TENSOR && x->st == AC_OK) {
    out[0] = leading(x, y, a[1].tensor->ndim == 0, d, all ? rank : nd, a[3].b && rank > 0, all);
    if (narrow) out[0] = x_cast(x, out[0], dt);
    return 1;
  }
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

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  return aci_quantiles(x, a, false, out);
}

AC_OP(quantile,
      .sig = "quantile(x: tensor, q: operand, dim: dim?, keepdim: bool = false, "
             "interpolation: enum(linear|lower|higher|midpoint|nearest) = linear) -> tensor",
      .composed = composed);
