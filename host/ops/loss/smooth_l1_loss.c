/* smooth_l1_loss: with d = |input - target|, l = d^2 / (2 beta) if d < beta, else d - beta / 2. Averaged over all
   elements, added up (sum) or kept (none). beta = 0 is l1_loss.
   input, target (any shape, the same for both, floats) -> () | that shape with reduction = none, f32 under
   autocast
   gradient: dinput = dl clamp((input - target) / beta, -1, 1) / n for mean, dtarget = -dinput.
   example: accel.smooth_l1_loss(accel.tensor { 1.0, 2.0 }, accel.tensor { 1.5, 4.0 }) --> 0.8125 */
#include "ops/loss/elementwise.h"

#define BODY(T, d, beta) (d) < (beta) ? (T)0.5 * (d) * (d) / (beta) : (d) - (T)0.5 * (beta)
#define FWD(T, p, x, t) (BODY(T, m_abs((x) - (t)), p[1]))
#define SLOPE(d, beta) (m_abs(d) < (beta) ? (d) / (beta) : (d) > 0 ? 1 : (d) < 0 ? -1 : 0 * (d))
#define BWD(T, p, dy, x, t) ((dy)*p[2] * SLOPE((x) - (t), p[1]))
ACI_LOSS(smooth_l1_loss, FWD)

static ac_status shape(ac_frame *f, ac_err *e) {
  if (!(ARG_F(f, 3) >= 0))
    return AC_FAIL(e, INVALID, "beta must not be negative, got %g", ARG_F(f, 3));
  return aci_elementwise_loss_shape(f, e);
}
static void grad(ac_grad *g) {
  aci_elementwise_loss_grad(g, x_smooth_l1_loss_backward(&g->x, g->dout[0], ARG_T(g, 0),
                                                         ARG_T(g, 1), (int)ARG_I(g, 2), ARG_F(g, 3),
                                                         aci_elementwise_loss_scale(g)));
}
static int plain(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *d = x_abs(x, x_sub(x, T(a[0].tensor), T(a[1].tensor), aci_float(1)));
  double beta = a[3].f;
  if (beta > 0) {
    ac_tensor *near = x_mul(x, T(x_mul(x, T(d), T(d))), F(0.5 / beta));
    d = x_where(x, x_lt(x, T(d), F(beta)), T(near), T(x_sub(x, T(d), F(0.5 * beta), aci_float(1))));
  }
  out[0] = aci_loss_reduce(x, d, a[2].i);
  return 1;
}

AC_OP(
    smooth_l1_loss,
    .sig =
        "smooth_l1_loss(input: tensor, target: tensor, reduction: enum(none|mean|sum) = mean, beta: float = 1.0) -> tensor",
    .shape = shape, .cpu = aci_elementwise_loss_cpu, .data = &smooth_l1_loss_map, .grad = grad,
    .composed = plain, .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .autocast = AC_CAST_F32,
    .flops_per_element = 6);
AC_MAP3(
    smooth_l1_loss_backward, BWD,
    .sig =
        "smooth_l1_loss_backward(dy: tensor, input: tensor, target: tensor, reduction: enum(none|mean|sum), beta: float, "
        "scale: float) -> tensor",
    .hidden = true);
