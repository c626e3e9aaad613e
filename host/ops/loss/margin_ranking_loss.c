/* margin_ranking_loss: l = max(0, -target (x1 - x2) + margin). x1 should rank above x2 if target is 1, below if it
   is -1.
   x1, x2, target (of one rank, shapes that broadcast, floats) -> () | the broadcast shape with reduction = none
   gradient: dx1 = -target dl, dx2 = target dl if the loss is positive, any number of times.
   example: accel.margin_ranking_loss(accel.tensor { 1.0, 0.0 }, accel.tensor { 0.5, 2.0 }, accel.tensor { 1.0, 1.0 }) --> 1 */
#include "ops/loss/elementwise.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_scalar one = aci_float(1);
  const int nd = a[0].tensor->ndim;
  if (a[1].tensor->ndim != nd || a[2].tensor->ndim != nd) {
    x->st = AC_FAIL(x->e, SHAPE, "x1, x2 and target must have one rank, got %d, %d and %d", nd,
                    (int)a[1].tensor->ndim, (int)a[2].tensor->ndim);
    return 1;
  }
  ac_tensor *d = x_sub(x, T(a[1].tensor), T(a[0].tensor), one);
  ac_tensor *l = x_relu(x, x_add(x, T(x_mul(x, T(d), T(a[2].tensor))), F(a[3].f), one));
  out[0] = aci_loss_reduce(x, l, a[4].i);
  return 1;
}

AC_OP(
    margin_ranking_loss,
    .sig =
        "margin_ranking_loss(x1: tensor, x2: tensor, target: tensor, margin: float = 0.0, reduction: enum(none|mean|sum) = mean) "
        "-> tensor",
    .composed = composed, .autocast = AC_CAST_F32);
