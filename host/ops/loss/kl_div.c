/* kl_div: l = target (ln target - input) for an input of logarithms of probabilities, 0 if target is 0. With
   log_target target is a logarithm as well, and l = e^target (target - input). batchmean divides the sum by the
   first extent, which is the divergence of the distributions. mean divides by the number of elements.
   input, target (any shape, the same for both, floats) -> () | that shape with reduction = none, f32 under
   autocast
   gradient: dinput = -target dl (or -e^target dl). dtarget = dl (ln target + 1 - input) (or dl e^target (target +
   1 - input)).
   example: accel.kl_div(accel.tensor({ 0.5, 0.5 }):log(), accel.tensor { 0.25, 0.75 }, { reduction = "sum" }) --> 0.130812 */
#include "ops/loss/elementwise.h"

#define FWD(T, p, x, t) \
  (p[1] != 0 ? m_exp(t) * ((t) - (x)) : ((t) == 0 ? 0 : (t)*m_log(t)) - (t) * (x))
#define BWD(T, p, dy, x, t) ((void)(x), -(dy)*p[2] * (p[1] != 0 ? m_exp(t) : (t)))
ACI_LOSS(kl_div, FWD)

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *in = ARG_T(g, 0), *t = ARG_T(g, 1), *dy = g->dout[0];
  double scale = aci_elementwise_loss_scale(g);
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0,
                ac_grad_reduce_to(
                    g, 0, x_kl_div_backward(x, dy, in, t, (int)ARG_I(g, 2), ARG_B(g, 3), scale)));
  if (!ac_grad_needs(g, 1)) return;
  ac_scalar one = aci_float(1);
  ac_tensor *slope = x_sub(x, T(x_add(x, T(ARG_B(g, 3) ? t : x_log(x, t)), F(1), one)), T(in), one);
  if (ARG_B(g, 3)) slope = x_mul(x, T(slope), T(x_exp(x, t)));
  ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, x_mul(x, T(x_mul(x, T(slope), F(scale))), T(dy))));
}
static int plain(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *in = a[0].tensor, *t = a[1].tensor, *l;
  ac_scalar one = aci_float(1);
  if (a[3].b) {
    l = x_mul(x, T(x_exp(x, t)), T(x_sub(x, T(t), T(in), one)));
  } else {
    ac_tensor *safe = x_masked_fill(x, t, x_eq(x, T(t), F(0)), F(1)); /* 0 ln 0 is 0 */
    l = x_sub(x, T(x_mul(x, T(t), T(x_log(x, safe)))), T(x_mul(x, T(t), T(in))), one);
  }
  out[0] = aci_loss_reduce(x, l, a[2].i);
  return 1;
}

AC_OP(
    kl_div,
    .sig =
        "kl_div(input: tensor, target: tensor, reduction: enum(none|mean|sum|batchmean) = mean, log_target: bool = false) -> "
        "tensor",
    .shape = aci_elementwise_loss_shape, .cpu = aci_elementwise_loss_cpu, .data = &kl_div_map,
    .grad = grad, .composed = plain, .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .autocast = AC_CAST_F32,
    .flops_per_element = 12);
AC_MAP3(
    kl_div_backward, BWD,
    .sig =
        "kl_div_backward(dy: tensor, input: tensor, target: tensor, reduction: enum(none|mean|sum|batchmean), log_target: bool, "
        "scale: float) -> tensor",
    .hidden = true);
