/* poisson_nll_loss: l = e^input - target input, or with log_input = false input - target ln(input + eps). full
   adds Stirling's target ln target - target + ln(2 pi target) / 2 if target > 1.
   input, target (any shape, the same for both, floats) -> () | that shape with reduction = none
   gradient: dinput = dl (e^input - target), dtarget = -dl input (without full), any number of times.
   example: accel.poisson_nll_loss(accel.tensor { 0.0, 1.0 }, accel.tensor { 1.0, 2.0 }) --> 0.859141 */
#include "ops/loss/elementwise.h"

enum { INPUT, TARGET, LOG_INPUT, FULL, EPS, REDUCTION };

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *in = a[INPUT].tensor, *t = a[TARGET].tensor, *l;
  ac_scalar one = aci_float(1);
  if (aci_loss_same(x, &a[INPUT], &a[TARGET], "input", "target") != AC_OK) return 1;
  if (a[LOG_INPUT].b) {
    l = x_sub(x, T(x_exp(x, in)), T(x_mul(x, T(t), T(in))), one);
  } else {
    ac_tensor *log = x_log(x, x_add(x, T(in), F(a[EPS].f), one));
    l = x_sub(x, T(in), T(x_mul(x, T(t), T(log))), one);
  }
  if (a[FULL].b) {
    ac_tensor *few = x_le(x, T(t), F(1)), *safe = x_masked_fill(x, t, few, F(1)),
              *log = x_log(x, safe);
    ac_tensor *s = x_sub(x, T(x_mul(x, T(safe), T(log))), T(safe), one);
    /* ln(2 pi) */
    s = x_add(x, T(s), T(x_add(x, T(log), F(1.83787706640934548356), one)), aci_float(0.5));
    l = x_add(x, T(l), T(x_masked_fill(x, s, few, F(0))), one);
  }
  out[0] = aci_loss_reduce(x, l, a[REDUCTION].i);
  return 1;
}

AC_OP(
    poisson_nll_loss,
    .sig =
        "poisson_nll_loss(input: tensor, target: tensor, log_input: bool = true, full: bool = false, eps: float = 1e-8, "
        "reduction: enum(none|mean|sum) = mean) -> tensor",
    .composed = composed, .autocast = AC_CAST_F32);
