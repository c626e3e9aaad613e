/* multilabel_soft_margin_loss: l = mean over classes of -weight (target log sigmoid(input) + (1 - target) log
   sigmoid(-input)), for targets of 0 and 1.
   input (..., C), target like input (any numbers), weight (C) or what broadcasts -> () | (...) with reduction = none
   gradient: dinput = dl weight (sigmoid(input) - target) / C, any number of times.
   example: accel.multilabel_soft_margin_loss(accel.tensor { { 0.0, 2.0 } }, accel.tensor { { 1.0, 0.0 } }) --> 1.410038 */
#include "ops/loss/elementwise.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_value target = a[1];
  const ac_scalar one = aci_float(1);
  const int64_t last = -1;
  ac_tensor *in = a[0].tensor;
  if (!ac_dtype_is_float((ac_dtype)target.tensor->dtype))
    target.tensor = x_cast(x, target.tensor, (ac_dtype)in->dtype);
  if (target.tensor == NULL || aci_loss_same(x, &a[0], &target, "input", "target") != AC_OK)
    return 1;
  if (in->ndim == 0) {
    x->st = AC_FAIL(x->e, SHAPE, "expected an input with a dim of classes, got rank 0");
    return 1;
  }
  ac_tensor *t = target.tensor;
  ac_tensor *l =
      x_add(x, T(x_mul(x, T(t), T(x_logsigmoid(x, in)))),
            T(x_mul(x, T(x_sub(x, F(1), T(t), one)), T(x_logsigmoid(x, x_neg(x, in))))), one);
  l = x_neg(x, l);
  if (a[2].kind == AC_T_TENSOR) l = x_mul(x, T(l), T(a[2].tensor));
  out[0] = aci_loss_reduce(x, x_mean(x, l, &last, 1, false, NULL), a[3].i);
  return 1;
}

AC_OP(multilabel_soft_margin_loss,
      .sig = "multilabel_soft_margin_loss(input: tensor, target: tensor, weight: tensor?, "
             "reduction: enum(none|mean|sum) = mean) -> tensor",
      .composed = composed, .autocast = AC_CAST_F32);
