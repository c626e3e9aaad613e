/* soft_margin_loss: l = log(1 + exp(-target input)), for targets 1 and -1.
   input (any shape, floats), target (the same shape, any numbers) -> () | that shape with reduction = none
   gradient: dinput = -dl target sigmoid(-target input), any number of times.
   example: accel.soft_margin_loss(accel.tensor { 0.0, 2.0 }, accel.tensor { 1.0, -1.0 }) --> 1.410038 */
#include "ops/loss/elementwise.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_value target = a[1];
  if (!ac_dtype_is_float((ac_dtype)target.tensor->dtype))
    target.tensor = x_cast(x, target.tensor, (ac_dtype)a[0].tensor->dtype);
  if (target.tensor == NULL || aci_loss_same(x, &a[0], &target, "input", "target") != AC_OK)
    return 1;
  ac_tensor *z = x_mul(x, T(a[0].tensor), T(target.tensor));
  out[0] = aci_loss_reduce(x, x_neg(x, x_logsigmoid(x, z)), a[2].i);
  return 1;
}

AC_OP(
    soft_margin_loss,
    .sig =
        "soft_margin_loss(input: tensor, target: tensor, reduction: enum(none|mean|sum) = mean) -> tensor",
    .composed = composed, .autocast = AC_CAST_F32);
