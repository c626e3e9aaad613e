/* huber_loss: with d = |input - target|, l = d^2 / 2 if d <= delta, else delta (d - delta / 2). Averaged over all
   elements, added up (sum) or kept (none).
   input, target (any shape, the same for both, floats) -> () | that shape with reduction = none, f32 under
   autocast
   gradient: dinput = dl clamp(input - target, -delta, delta) / n for mean, dtarget = -dinput.
   example: accel.huber_loss(accel.tensor { 1.0, 2.0 }, accel.tensor { 1.5, 4.0 }) --> 0.8125 */
#include "ops/loss/elementwise.h"

#define BODY(T, d, delta) (d) <= (delta) ? (T)0.5 * (d) * (d) : (delta) * ((d) - (T)0.5 * (delta))
#define FWD(T, p, x, t) (BODY(T, m_abs((x) - (t)), p[1]))
#define SLOPE(d, delta) ((d) > (delta) ? (delta) : (d) < -(delta) ? -(delta) : (d))
#define BWD(T, p, dy, x, t) ((dy)*p[2] * SLOPE((x) - (t), p[1]))
ACI_LOSS(huber_loss, FWD)

static ac_status shape(ac_frame *f, ac_err *e) {
  if (!(ARG_F(f, 3) > 0)) return AC_FAIL(e, INVALID, "delta must be positive, got %g", ARG_F(f, 3));
  return aci_elementwise_loss_shape(f, e);
}
static void grad(ac_grad *g) {
  aci_elementwise_loss_grad(g, x_huber_loss_backward(&g->x, g->dout[0], ARG_T(g, 0), ARG_T(g, 1),
                                                     (int)ARG_I(g, 2), ARG_F(g, 3),
                                                     aci_elementwise_loss_scale(g)));
}
static int plain(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *d = x_abs(x, x_sub(x, T(a[0].tensor), T(a[1].tensor), aci_float(1)));
  ac_tensor *near = x_mul(x, T(x_mul(x, T(d), T(d))), F(0.5));
  ac_tensor *far = x_mul(x, T(x_sub(x, T(d), F(0.5 * a[3].f), aci_float(1))), F(a[3].f));
  out[0] = aci_loss_reduce(x, x_where(x, x_le(x, T(d), F(a[3].f)), T(near), T(far)), a[2].i);
  return 1;
}

AC_OP(
    huber_loss,
    .sig =
        "huber_loss(input: tensor, target: tensor, reduction: enum(none|mean|sum) = mean, delta: float = 1.0) -> tensor",
    .shape = shape, .cpu = aci_elementwise_loss_cpu, .data = &huber_loss_map, .grad = grad,
    .composed = plain, .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .autocast = AC_CAST_F32,
    .flops_per_element = 6);
AC_MAP3(
    huber_loss_backward, BWD,
    .sig =
        "huber_loss_backward(dy: tensor, input: tensor, target: tensor, reduction: enum(none|mean|sum), delta: float, "
        "scale: float) -> tensor",
    .hidden = true);
