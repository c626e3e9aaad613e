/* multilabel_margin_loss: each row of target lists classes, up to the first -1. l = sum over listed classes j and
   others i of max(0, 1 - (input[j] - input[i])), over the number of classes.
   input (N, C) | (C), target like input, i64 or i32 -> () | (N) with reduction = none | () of (C)
   gradient: through the terms above 0, any number of times.
   example: accel.multilabel_margin_loss(accel.tensor { { 0.1, 0.2, 0.4, 0.8 } }, accel.tensor { { 3, 0, -1, 1 } }) --> 0.85 */
#include "ops/loss/classes.h"

static ac_status check(ac_expr *x, const ac_value *a) {
  const ac_tensor *in = a[0].tensor, *t = a[1].tensor;
  char s[128], u[128];
  if (aci_classes_input(x, in) != AC_OK) return x->st;
  if (t->dtype != AC_I64 && t->dtype != AC_I32)
    return x->st = AC_FAIL(x->e, DTYPE, "target has to hold classes (i64 or i32), got %s",
                           ac_dtype_name((ac_dtype)t->dtype));
  if (!aci_same_shape(t, in))
    return x->st = AC_FAIL(x->e, SHAPE, "target of shape %s does not fit input of shape %s",
                           aci_shape_str(t->ndim, t->shape, s, sizeof s),
                           aci_shape_str(in->ndim, in->shape, u, sizeof u));
  return AC_OK;
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *in = a[0].tensor;
  const int64_t all[2] = {1, 2};
  const ac_scalar one = aci_float(1);
  const ac_operand zero = F(0), least = ac_operand_int(0);
  const ac_dtype dt = (ac_dtype)in->dtype;
  if (check(x, a) != AC_OK) return 1;
  const int64_t n = in->ndim == 2 ? in->shape[0] : 1, c = aci_classes_of(in);
  ac_tensor *m = x_reshape(x, in, (int64_t[]){n, c}, 2);
  ac_tensor *t = x_reshape(x, a[1].tensor, m == NULL ? NULL : m->shape, 2);
  /* 1 for every listed class before the first -1 */
  ac_tensor *live = x_cumprod(x, x_cast(x, x_ge(x, T(t), least), dt), 1, NULL);
  t = x_clamp(x, t, &least, NULL);
  ac_tensor *none = x_full_like(x, m, aci_float(0), NULL, NULL);
  ac_tensor *listed = x_scatter_add(x, none, 1, t, live);
  ac_tensor *other = x_cast(x, x_eq(x, T(listed), F(0)), dt);
  ac_tensor *mine = x_gather(x, m, 1, t);
  /* [n, listed, others] */
  ac_tensor *d = x_sub(x, T(x_unsqueeze(x, m, 1)), T(x_unsqueeze(x, mine, 2)), one);
  d = x_clamp(x, x_add(x, T(d), F(1), one), &zero, NULL);
  d = x_mul(x, T(x_mul(x, T(d), T(x_unsqueeze(x, live, 2)))), T(x_unsqueeze(x, other, 1)));
  ac_tensor *l = x_div(x, T(x_sum(x, d, all, 2, false, NULL)), F((double)c));
  if (in->ndim < 2) l = x_reshape(x, l, NULL, 0);
  out[0] = aci_loss_reduce(x, l, a[2].i);
  return 1;
}

AC_OP(
    multilabel_margin_loss,
    .sig =
        "multilabel_margin_loss(input: tensor, target: tensor, reduction: enum(none|mean|sum) = mean) -> tensor",
    .composed = composed, .autocast = AC_CAST_F32);
