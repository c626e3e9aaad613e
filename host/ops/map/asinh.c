/* asinh: y = ln(x + sqrt(x^2 + 1)), accurate near 0.          x (any shape) -> y (same shape)
   gradient: dx = dy / sqrt(x^2 + 1).
   example: accel.tensor { -1.0, 0.0, 3.0 }:asinh() --> { -0.881374, 0, 1.818446 } */
#include "ops/map/map.h"

/* ln(1 + a + a^2 / (1 + sqrt(a^2 + 1))). If a^2 dominates the 1, ln 2a. */
static inline AC_INLINE float asinh_one(float x) {
  float a = aci_float32(aci_bits32(x) & 0x7fffffffu);
  float near = a > 1e8f ? 1.0f : a;
  float y = aci_log1pf(near + near * near / (1.0f + m_sqrt(m_fma(near, near, 1.0f))));
  y = a > 1e8f ? aci_logf(a) + 0x1.62e430p-1f : y;
  y = aci_float32(aci_bits32(y) | (aci_bits32(x) & 0x80000000u));
  return x != x ? x : y;
}
#define FWD(T, p, x) ACI_VM1(x, asinh_one, asinh)

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *under = x_add(x, T(x_square(x, ARG_T(g, 0))), F(1), aci_float(1));
  ac_grad_set(g, 0, x_mul(x, T(g->dout[0]), T(x_rsqrt(x, under))));
}

AC_MAP1(asinh, FWD, .sig = "asinh(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 30, .alias = "arcsinh");
