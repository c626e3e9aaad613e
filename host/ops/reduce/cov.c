/* cov: the covariances of the rows of x, each a variable, over its columns, the observations: sum of w (x_i - mean_i) (x_j -
   mean_j) / divisor. w = fweights * aweights (1 if omitted). The divisor is sum w - correction, with aweights sum w -
   correction (sum w aweights) / (sum w).
   x (variables, n) or (n), fweights (n, integers: how often each occurs), aweights (n, floats) -> y (variables, variables) or ()
   gradient: of the ops it consists of.
   example: accel.tensor { { 0.0, 1, 2 }, { 2, 1, 0 } }:cov() --> { { 1, -1 }, { -1, 1 } }
   example: accel.tensor { 1.0, 2, 3 }:cov { correction = 0 } --> 0.666667 */
#include "ops/reduce/composed.h"

static bool check(ac_expr *x, const ac_tensor *w, int64_t n, bool whole, const char *name) {
  char s[128];
  if (w == NULL) return true;
  if (w->ndim > 1 || w->numel != n)
    x->st = AC_FAIL(x->e, SHAPE, "%s must have shape (%lld), one for each observation, got %s",
                    name, (long long)n, aci_shape_str(w->ndim, w->shape, s, sizeof s));
  else if (whole == ac_dtype_is_float((ac_dtype)w->dtype) || w->dtype == AC_BOOL)
    x->st = AC_FAIL(x->e, DTYPE, "%s must be %s, got %s", name, whole ? "integers" : "floats",
                    ac_dtype_name((ac_dtype)w->dtype));
  return x->st == AC_OK;
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor, *w = NULL;
  ac_tensor *f = a[2].kind == AC_T_NONE ? NULL : a[2].tensor;
  ac_tensor *v = a[3].kind == AC_T_NONE ? NULL : a[3].tensor;
  const double correction = (double)a[1].i;
  char s[128];
  if (t->ndim > 2 || t->dtype == AC_BOOL) {
    x->st =
        AC_FAIL(x->e, SHAPE, "takes numbers of at most 2 dims, got %s of shape %s",
                ac_dtype_name((ac_dtype)t->dtype), aci_shape_str(t->ndim, t->shape, s, sizeof s));
    return 0;
  }
  const ac_dtype dt = (ac_dtype)t->dtype;
  const bool narrow = dt == AC_BF16 || dt == AC_F16; /* rounded once, at the end */
  if (!ac_dtype_is_float(dt) || narrow) t = x_cast(x, t, AC_F32);
  const int64_t rows = t->ndim < 2 ? 1 : t->shape[0], n = t->ndim < 2 ? t->numel : t->shape[1];
  const int64_t shape[2] = {rows, n}, one = 1;
  if (!check(x, f, n, true, "fweights") || !check(x, v, n, false, "aweights")) return 0;
  t = x_reshape(x, t, shape, 2);
  if (t == NULL) return 0;
  if (f != NULL || v != NULL) w = f == NULL ? v : v == NULL ? f : x_mul(x, T(f), T(v));
  if (w == NULL) {
    ac_tensor *c = x_sub(x, T(t), T(x_mean(x, t, &one, 1, true, NULL)), aci_float(1));
    const double over = (double)n - correction;
    ac_tensor *y = x_matmul(x, c, x_transpose(x, c, 0, 1));
    out[0] = x_div(x, T(y), F(over > 0 ? over : 0));
  } else {
    w = x_reshape(x, w, shape + 1, 1);
    ac_tensor *sum = x_sum(x, w, NULL, 0, false, NULL), *over = sum;
    ac_tensor *mean = x_div(x, T(x_sum(x, x_mul(x, T(t), T(w)), &one, 1, true, NULL)), T(sum));
    ac_tensor *c = x_sub(x, T(t), T(mean), aci_float(1));
    if (correction != 0) {
      ac_tensor *part = v == NULL ? NULL
                                  : x_sum(x, x_mul(x, T(w), T(x_reshape(x, v, shape + 1, 1))), NULL,
                                          0, false, NULL);
      over = v == NULL ? x_sub(x, T(sum), F(correction), aci_float(1))
                       : x_sub(x, T(sum), T(x_mul(x, T(x_div(x, T(part), T(sum))), F(correction))),
                               aci_float(1));
    }
    const ac_operand low = ac_operand_float(0);
    ac_tensor *y = x_matmul(x, c, x_transpose(x, x_mul(x, T(c), T(w)), 0, 1));
    out[0] = x_div(x, T(y), T(x_clamp(x, over, &low, NULL)));
  }
  if (narrow && (v == NULL || v->dtype == a[0].tensor->dtype)) out[0] = x_cast(x, out[0], dt);
  if (rows == 1) out[0] = x_reshape(x, out[0], NULL, 0);
  return 1;
}

AC_OP(cov,
      .sig = "cov(x: tensor, correction: int = 1, fweights: tensor?, aweights: tensor?) -> tensor",
      .composed = composed);
