/* gaussian_nll_loss: l = (ln v + (input - target)^2 / v) / 2 with v = max(var, eps); full adds ln(2 pi) / 2.
   input, target (any shape, the same for both; floats), var (broadcast to it) -> () | that shape with reduction = none
   gradient: to all three, none to var below eps; any number of times.
   example: accel.gaussian_nll_loss(accel.tensor { 1.0 }, accel.tensor { 3.0 }, accel.tensor { 2.0 }) --> 1.346574 */
#include "ops/loss/pair.h"

enum { INPUT, TARGET, VAR, FULL, EPS, REDUCTION };

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_scalar one = aci_float(1), least = aci_float(a[EPS].f);
  if (aci_loss_same(x, &a[INPUT], &a[TARGET], "input", "target") != AC_OK) return 1;
  ac_tensor *v = x_clamp(x, a[VAR].tensor, &least, NULL);
  ac_tensor *d = x_sub(x, T(a[INPUT].tensor), T(a[TARGET].tensor), one);
  ac_tensor *l = x_add(x, T(x_div(x, T(x_mul(x, T(d), T(d))), T(v))), T(x_log(x, v)), one);
  l = x_mul(x, T(l), F(0.5));
  if (a[FULL].b) l = x_add(x, T(l), F(0.91893853320467274178), one);
  out[0] = aci_loss_reduce(x, l, a[REDUCTION].i);
  return 1;
}

AC_OP(gaussian_nll_loss,
      .sig = "gaussian_nll_loss(input: tensor, target: tensor, var: tensor, full: bool = false, eps: float = 1e-6, "
             "reduction: enum(none|mean|sum) = mean) -> tensor",
      .composed = composed, .autocast = AC_CAST_F32);
