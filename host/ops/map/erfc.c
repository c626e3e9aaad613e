/* erfc: y = 1 - erf(x), accurate to a few roundings of y itself even if erf(x) is nearly 1.
   x (any shape) -> y (same shape)
   gradient: dx = -dy * 2 / sqrt pi * e^(-x^2).
   example: accel.tensor { 0.0, 1.0, -1.0 }:erfc() --> { 1, 0.157299, 1.842701 }
   example: accel.tensor { 4.0, 6.0 }:erfc():log() --> { -17.987778, -38.377561 } */
#include "ops/map/map.h"

/* For |x| from 1/2: e^(-a^2) t P(t) with a = |x|, t = 2 / (2 + a). P is a fit of degree 10 to
 * e^(a^2) erfc(a) / t over 0 .. 10.6, beyond which erfc is 0 in f32. The rounding error of a^2
 * returns as a factor. */
static inline AC_INLINE float erfc_near(float x) {
  float a = m_abs(x);
  a = a > 10.6f ? 10.6f : a;
  float t = 2.0f / (2.0f + a), z = a * a, lost = aci_fma32(a, a, -z);
  float p = 0x1.2aea10p-5f;
  p = aci_fma32(p, t, -0x1.8ffd8cp-3f);
  p = aci_fma32(p, t, 0x1.91eff0p-2f);
  p = aci_fma32(p, t, -0x1.39870ap-2f);
  p = aci_fma32(p, t, -0x1.95bd2ap-8f);
  p = aci_fma32(p, t, 0x1.a147320p-6f);
  p = aci_fma32(p, t, 0x1.e3e7b6p-5f);
  p = aci_fma32(p, t, 0x1.79b5cap-3f);
  p = aci_fma32(p, t, 0x1.f68b88p-3f);
  p = aci_fma32(p, t, 0x1.210176p-2f);
  p = aci_fma32(p, t, 0x1.20dc0ap-2f);
  float g = p * t, e = m_exp(-z), tail = aci_fma32(-lost, g, g) * e;
  float y = x < -0.5f ? 2.0f - tail : x > 0.5f ? tail : 1.0f - m_erf(x);
  return x != x ? x : y;
}
#define FWD(T, p, x) ACI_VM1(x, erfc_near, erfc)

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *e = x_exp(x, x_neg(x, x_mul(x, T(ARG_T(g, 0)), T(ARG_T(g, 0)))));
  ac_grad_set(g, 0, x_mul(x, T(g->dout[0]), T(x_mul(x, T(e), F(-1.1283791670955126)))));
}

AC_MAP1(erfc, FWD, .sig = "erfc(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 45);
