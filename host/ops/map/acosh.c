/* acosh: y = ln(x + sqrt(x^2 - 1)), for x >= 1, else NaN.          x (any shape) -> y (same shape)
   gradient: dx = dy / sqrt(x^2 - 1).
   example: accel.tensor { 1.0, 2.0 }:acosh() --> { 0, 1.316958 } */
#include "ops/map/map.h"

/* With t = x - 1: ln(1 + t + sqrt(2 t + t^2)). If t^2 dominates, ln 2x. */
static inline AC_INLINE float acosh_one(float x) {
  float t = (x > 1e8f ? 2.0f : x) - 1.0f;
  float y = aci_log1pf(t + m_sqrt(m_fma(t, t, t + t)));
  y = x > 1e8f ? aci_logf(x) + 0x1.62e430p-1f : y;
  return x >= 1.0f ? y : NAN;
}
#define FWD(T, p, x) ACI_VM1(x, acosh_one, acosh)

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *under = x_sub(x, T(x_square(x, ARG_T(g, 0))), F(1), aci_float(1));
  ac_grad_set(g, 0, x_mul(x, T(g->dout[0]), T(x_rsqrt(x, under))));
}

AC_MAP1(acosh, FWD, .sig = "acosh(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 30, .alias = "arccosh");
