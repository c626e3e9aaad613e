/* multi_margin_loss: l = sum over the classes i other than target of max(0, margin - input[target] + input[i])^p,
   times weight[target], over the number of classes. p is 1 or 2.
   input (N, C) | (C), target (N) | () i64 or i32, weight (C) -> () | (N) with reduction = none | () of (C)
   gradient: through the terms above 0, any number of times.
   example: accel.multi_margin_loss(accel.tensor { { 0.1, 0.2, 0.4, 0.8 } }, accel.tensor { 3 }) --> 0.325 */
#include "ops/loss/classes.h"

enum { INPUT, TARGET, P, MARGIN, WEIGHT, REDUCTION };

static ac_status check(ac_expr *x, const ac_value *a) {
  const ac_tensor *in = a[INPUT].tensor, *t = a[TARGET].tensor;
  char s[128], u[128];
  if (aci_classes_input(x, in) != AC_OK) return x->st;
  if (a[P].f != 1 && a[P].f != 2)
    return x->st = AC_FAIL(x->e, INVALID, "p must be 1 or 2, got %g", a[P].f);
  if (t->dtype != AC_I64 && t->dtype != AC_I32)
    return x->st = AC_FAIL(x->e, DTYPE, "target has to hold classes (i64 or i32), got %s",
                           ac_dtype_name((ac_dtype)t->dtype));
  if (t->numel != (in->ndim == 2 ? in->shape[0] : 1) || t->ndim > 1)
    return x->st = AC_FAIL(x->e, SHAPE, "target of shape %s does not fit input of shape %s",
                           aci_shape_str(t->ndim, t->shape, s, sizeof s),
                           aci_shape_str(in->ndim, in->shape, u, sizeof u));
  return aci_classes_weight(x, &a[WEIGHT], aci_classes_of(in));
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *in = a[INPUT].tensor;
  const int64_t last = -1;
  const ac_scalar one = aci_float(1);
  const ac_operand zero = F(0);
  if (check(x, a) != AC_OK) return 1;
  const int64_t rows[2] = {in->ndim == 2 ? in->shape[0] : 1, 1}, c = aci_classes_of(in);
  ac_tensor *m = x_reshape(x, in, (int64_t[]){rows[0], c}, 2);
  ac_tensor *t = x_reshape(x, a[TARGET].tensor, rows, 2);
  ac_tensor *own = x_gather(x, m, 1, t);
  ac_tensor *d = x_add(x, T(x_sub(x, T(m), T(own), one)), F(a[MARGIN].f), one);
  d = x_clamp(x, d, &zero, NULL);
  if (a[P].f == 2) d = x_mul(x, T(d), T(d));
  if (a[WEIGHT].kind == AC_T_TENSOR) {
    ac_tensor *w = x_index_select(x, a[WEIGHT].tensor, 0, x_reshape(x, t, rows, 1));
    d = x_mul(x, T(d), T(x_reshape(x, w, rows, 2)));
  }
  /* the target's own term is left out by its position, because margin may be NaN or negative */
  d = d == NULL ? NULL : x_scatter(x, d, 1, t, zero);
  ac_tensor *l = x_div(x, T(x_sum(x, d, &last, 1, false, NULL)), F((double)c));
  if (in->ndim < 2) l = x_reshape(x, l, NULL, 0);
  out[0] = aci_loss_reduce(x, l, a[REDUCTION].i);
  return 1;
}

AC_OP(
    multi_margin_loss,
    .sig =
        "multi_margin_loss(input: tensor, target: tensor, p: float = 1, margin: float = 1.0, weight: tensor?, "
        "reduction: enum(none|mean|sum) = mean) -> tensor",
    .composed = composed, .autocast = AC_CAST_F32);
