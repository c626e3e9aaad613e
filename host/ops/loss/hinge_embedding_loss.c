/* hinge_embedding_loss: l = input if target is 1, max(0, margin - input) if it is -1: input is a distance. For any
   other target l is the sum of both, as in PyTorch.
   input (any shape, floats), target (the same shape, any numbers) -> () | that shape with reduction = none
   gradient: dinput = dl if target is 1, -dl if it is -1 and input < margin, any number of times.
   example: accel.hinge_embedding_loss(accel.tensor { 0.5, 0.25 }, accel.tensor { 1.0, -1.0 }) --> 0.625 */
#include "ops/loss/elementwise.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_value target = a[1];
  if (!ac_dtype_is_float((ac_dtype)target.tensor->dtype))
    target.tensor = x_cast(x, target.tensor, AC_F32);
  if (target.tensor == NULL || aci_loss_same(x, &a[0], &target, "input", "target") != AC_OK)
    return 1;
  ac_tensor *in = a[0].tensor, *t = target.tensor;
  ac_scalar one = aci_float(1);
  ac_tensor *far = x_relu(x, x_sub(x, F(a[2].f), T(in), one));
  ac_tensor *l = x_add(x, T(x_where(x, x_eq(x, T(t), F(-1)), F(0), T(in))),
                       T(x_where(x, x_eq(x, T(t), F(1)), F(0), T(far))), one);
  out[0] = aci_loss_reduce(x, l, a[3].i);
  return 1;
}

AC_OP(
    hinge_embedding_loss,
    .sig =
        "hinge_embedding_loss(input: tensor, target: tensor, margin: float = 1.0, reduction: enum(none|mean|sum) = mean) -> tensor",
    .composed = composed, .autocast = AC_CAST_F32);
