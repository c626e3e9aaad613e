/* l1_loss: l = |input - target|, averaged over all elements, added up (sum) or kept (none).
   input, target (any shape, the same for both, floats) -> () | that shape with reduction = none, f32 under
   autocast
   gradient: dinput = dl sign(input - target) / n for mean, 0 if they are equal. dtarget = -dinput.
   example: accel.l1_loss(accel.tensor { 1.0, 2.0 }, accel.tensor { 1.0, 4.0 }) --> 1 */
#include "ops/loss/elementwise.h"

#define FWD(T, p, x, t) m_abs((x) - (t))
#define BWD(T, p, dy, x, t) ((x) > (t) ? (dy)*p[1] : (x) < (t) ? -(dy)*p[1] : 0 * (dy))
ACI_LOSS(l1_loss, FWD)

static void grad(ac_grad *g) {
  aci_elementwise_loss_grad(g, x_l1_loss_backward(&g->x, g->dout[0], ARG_T(g, 0), ARG_T(g, 1),
                                                  (int)ARG_I(g, 2), aci_elementwise_loss_scale(g)));
}
static int plain(ac_expr *x, const ac_value *a, ac_tensor **out) {
  out[0] =
      aci_loss_reduce(x, x_abs(x, x_sub(x, T(a[0].tensor), T(a[1].tensor), aci_float(1))), a[2].i);
  return 1;
}

AC_OP(l1_loss,
      .sig =
          "l1_loss(input: tensor, target: tensor, reduction: enum(none|mean|sum) = mean) -> tensor",
      .shape = aci_elementwise_loss_shape, .cpu = aci_elementwise_loss_cpu, .data = &l1_loss_map,
      .grad = grad, .composed = plain, .save = AC_SAVE_IN(0) | AC_SAVE_IN(1),
      .autocast = AC_CAST_F32, .flops_per_element = 3);
AC_MAP3(
    l1_loss_backward, BWD,
    .sig =
        "l1_loss_backward(dy: tensor, input: tensor, target: tensor, reduction: enum(none|mean|sum), scale: float) -> tensor",
    .hidden = true);
