/* histogram: the sum of the weights of the elements of x (1 each without weight) in each interval between neighbouring edges, the
   last one with its end. The edges are `bins`, an ascending tensor, or `bins` intervals of equal length over range, by default from
   the smallest to the largest element. With density the sums are divided by their total and by the length of the interval.
   x (f32 or f64, any shape), weight (as x) -> hist (bins), bin_edges (bins + 1), both of x's dtype          No gradient.
   example: accel.tensor { 1.0, 2, 1 }:histogram(4, { range = { 0, 3 } }) --> { 0, 2, 1, 0 }, { 0, 0.75, 1.5, 2.25, 3 }
   example: accel.histogram(accel.tensor { 1.0, 2, 1 }, accel.tensor { 0.0, 1.5, 2 }) --> { 2, 1 }, { 0, 1.5, 2 } */
#include "ops/reduce/composed.h"

/* n intervals from the range, or of the elements, computed from both ends. */
static ac_tensor *edges(ac_expr *x, ac_tensor *v, int64_t n, const ac_value *range) {
  const int64_t one = 1, many = n + 1;
  const bool given = range->kind != AC_T_NONE && range->n == 2;
  if (n < 1 || (range->kind != AC_T_NONE && !given) ||
      (given && !(range->floats[0] <= range->floats[1]))) {
    x->st = n < 1 ? AC_FAIL(x->e, INVALID, "bins must be at least 1, got %lld", (long long)n)
                  : AC_FAIL(x->e, INVALID, "range must be two numbers {min, max}, min <= max");
    return NULL;
  }
  ac_tensor *zero = x_sum(x, x_narrow(x, v, 0, 0, 0), NULL, 0, false, NULL), *lo, *hi;
  if (given || v->numel == 0) {
    lo = x_full_like(x, zero, aci_float(given ? range->floats[0] : 0), NULL, NULL);
    hi = x_full_like(x, zero, aci_float(given ? range->floats[1] : 1), NULL, NULL);
  } else {
    lo = x_amin(x, v, NULL, 0, false);
    hi = x_amax(x, v, NULL, 0, false);
  }
  ac_tensor *equal = x_eq(x, T(lo), T(hi));
  lo = x_where(x, equal, T(x_sub(x, T(lo), F(0.5), aci_float(1))), T(lo));
  hi = x_where(x, equal, T(x_add(x, T(hi), F(0.5), aci_float(1))), T(hi));
  ac_tensor *ones = x_ones_like(x, x_expand(x, x_reshape(x, zero, &one, 1), &many, 1), NULL, NULL);
  ac_tensor *i = x_sub(x, T(x_cumsum(x, ones, 0, NULL)), F(1), aci_float(1));
  ac_tensor *step = x_div(x, T(x_sub(x, T(hi), T(lo), aci_float(1))), F((double)n));
  ac_tensor *up = x_add(x, T(x_mul(x, T(i), T(step))), T(lo), aci_float(1));
  ac_tensor *rest = x_sub(x, F((double)n), T(i), aci_float(1));
  ac_tensor *down = x_sub(x, T(hi), T(x_mul(x, T(rest), T(step))), aci_float(1));
  return x_where(x, x_lt(x, T(i), F((double)(n + 1) / 2)), T(up), T(down));
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor, *w = a[3].kind == AC_T_NONE ? NULL : a[3].tensor, *e;
  const int64_t row = -1;
  if (t->dtype != AC_F32 && t->dtype != AC_F64) {
    x->st = AC_FAIL(x->e, DTYPE, "needs f32 or f64, got %s; cast x first",
                    ac_dtype_name((ac_dtype)t->dtype));
    return 0;
  }
  if (w != NULL && (w->dtype != t->dtype || !aci_same_shape(w, t))) {
    x->st = AC_FAIL(x->e, SHAPE, "weight must have the shape and the dtype of x");
    return 0;
  }
  ac_tensor *v = x_reshape(x, t, &row, 1);
  if (v == NULL) return 0;
  if (a[1].kind == AC_T_TENSOR) {
    e = a[1].tensor;
    if (e->ndim != 1 || e->numel < 2 || e->dtype != t->dtype || a[2].kind != AC_T_NONE) {
      x->st = AC_FAIL(x->e, INVALID,
                      "bins as a tensor must hold at least 2 edges of dtype %s, without range",
                      ac_dtype_name((ac_dtype)t->dtype));
      return 0;
    }
  } else {
    e = edges(x, v, aci_scalar_i(a[1].scalar), &a[2]);
  }
  if (e == NULL) return 0;
  const int64_t n = e->numel - 1;
  ac_tensor *top = x_select(x, e, 0, n);
  ac_tensor *at =
      x_sub(x, T(x_bucketize(x, T(v), e, true, false)), ac_operand_int(1), aci_float(1));
  at = x_where(x, x_eq(x, T(v), T(top)), ac_operand_int(n - 1), T(at));
  const ac_operand no = ac_operand_int(n); /* outside */
  at = x_where(x, x_lt(x, T(at), ac_operand_int(0)), no, T(at));
  ac_tensor *sum = x_bincount(x, at, w == NULL ? NULL : x_reshape(x, w, &row, 1), n + 1);
  sum = x_cast(x, x_narrow(x, sum, 0, 0, n), (ac_dtype)t->dtype);
  if (a[4].b) {
    ac_tensor *wide =
        x_sub(x, T(x_narrow(x, e, 0, 1, n)), T(x_narrow(x, e, 0, 0, n)), aci_float(1));
    sum = x_div(x, T(x_div(x, T(sum), T(x_sum(x, sum, NULL, 0, false, NULL)))), T(wide));
  }
  out[0] = sum;
  out[1] = a[1].kind == AC_T_TENSOR ? x_clone(x, e) : e;
  return 2;
}

AC_OP(histogram,
      .sig = "histogram(x: tensor, bins: operand, range: floats?, weight: tensor?, "
             "density: bool = false) -> (hist: tensor, bin_edges: tensor)",
      .composed = composed, .nondiff = true);
