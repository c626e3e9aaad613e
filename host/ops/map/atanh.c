/* atanh: y = ln((1 + x) / (1 - x)) / 2, for |x| <= 1, else NaN. Accurate near 0.
   x (any shape) -> y (same shape)
   gradient: dx = dy / (1 - x^2).
   example: accel.tensor { -0.5, 0.0, 0.9 }:atanh() --> { -0.549306, 0, 1.472219 } */
#include "ops/map/map.h"

static inline AC_INLINE float atanh_one(float x) {
  float a = m_abs(x), y = 0.5f * aci_log1pf((a + a) / (1.0f - a));
  y = m_copysign(y, x);
  return a <= 1.0f ? y : NAN;
}
#define FWD(T, p, x) ACI_VM1(x, atanh_one, atanh)

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *under = x_sub(x, F(1), T(x_square(x, ARG_T(g, 0))), aci_float(1));
  ac_grad_set(g, 0, x_div(x, T(g->dout[0]), T(under)));
}

AC_MAP1(atanh, FWD, .sig = "atanh(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 20, .alias = "arctanh");
