/* Inverse circular functions of f32, branch-free like base/vmath.h and with its conventions, shared
 * by atan, atan2, asin and acos. Doubles take libm. Errors against the exact result: atan acos 1.4
 * ulp, asin atan2 1.8. */
#ifndef ACI_OPS_ANGLE_H
#define ACI_OPS_ANGLE_H
#include "base/vmath.h"

/* pi and pi / 2 in two floats each */
#define ACI_PI_HI 0x1.921fb6p+1f
#define ACI_PI_LO -0x1.777a5cp-24f
#define ACI_PI_2_HI 0x1.921fb6p+0f
#define ACI_PI_2_LO -0x1.777a5cp-25f

/* atan t for 0 <= t <= 1 */
ACI_VM float aci_atan_unit(float t) {
  float z = t * t;
  float p = -0x1.d32dacp-10f;
  p = aci_fma32(p, z, 0x1.6410e4p-7f);
  p = aci_fma32(p, z, -0x1.fd6fbcp-6f);
  p = aci_fma32(p, z, 0x1.da24cap-5f);
  p = aci_fma32(p, z, -0x1.580814p-4f);
  p = aci_fma32(p, z, 0x1.c08c1ap-4f);
  p = aci_fma32(p, z, -0x1.242084p-3f);
  p = aci_fma32(p, z, 0x1.9991e4p-3f);
  p = aci_fma32(p, z, -0x1.55553ep-2f);
  return aci_fma32(p * z, t, t);
}

ACI_VM float aci_atanf(float x) {
  float a = aci_float32(aci_bits32(x) & 0x7fffffffu);
  float r = aci_atan_unit(a > 1.0f ? 1.0f / a : a);
  float y = a > 1.0f ? (ACI_PI_2_HI - r) + ACI_PI_2_LO : r;
  return aci_float32(aci_bits32(y) | (aci_bits32(x) & 0x80000000u));
}

/* The angle of the point (x, y), in (-pi, pi]. */
ACI_VM float aci_atan2f(float y, float x) {
  float ax = aci_float32(aci_bits32(x) & 0x7fffffffu),
        ay = aci_float32(aci_bits32(y) & 0x7fffffffu);
  float big = ay > ax ? ay : ax, small = ay > ax ? ax : ay;
  float t = small / big;
  t = big == 0.0f ? 0.0f : t;
  t = small == INFINITY ? 1.0f : t;
  float r = aci_atan_unit(t);
  r = ay > ax ? (ACI_PI_2_HI - r) + ACI_PI_2_LO : r;
  uint32_t behind = aci_bits32(x) & 0x80000000u;
  r = behind != 0u ? (ACI_PI_HI - r) + ACI_PI_LO : r;
  r = aci_float32(aci_bits32(r) | (aci_bits32(y) & 0x80000000u));
  r = x != x ? x : r;
  return y != y ? y : r;
}

/* asin s for 0 <= s <= 1/2, z = s^2 */
ACI_VM float aci_asin_half(float s, float z) {
  float p = 0x1.34db14p-5f;
  p = aci_fma32(p, z, 0x1.d4fb36p-7f);
  p = aci_fma32(p, z, 0x1.04d452p-5f);
  p = aci_fma32(p, z, 0x1.6ca744p-5f);
  p = aci_fma32(p, z, 0x1.3338acp-4f);
  p = aci_fma32(p, z, 0x1.55554cp-3f);
  return aci_fma32(p * z, s, s);
}

/* Beyond 1/2 by asin a = pi/2 - 2 asin(sqrt((1 - a) / 2)). */
ACI_VM float aci_asinf(float x) {
  float a = aci_float32(aci_bits32(x) & 0x7fffffffu);
  float z = a > 0.5f ? aci_fma32(-0.5f, a, 0.5f) : a * a;
  float r = aci_asin_half(a > 0.5f ? __builtin_sqrtf(z) : a, z);
  float y = a > 0.5f ? aci_fma32(-2.0f, r, ACI_PI_2_HI) + ACI_PI_2_LO : r;
  y = aci_float32(aci_bits32(y) | (aci_bits32(x) & 0x80000000u));
  return a <= 1.0f ? y : NAN;
}

ACI_VM float aci_acosf(float x) {
  float a = aci_float32(aci_bits32(x) & 0x7fffffffu);
  float z = a > 0.5f ? aci_fma32(-0.5f, a, 0.5f) : a * a;
  float r = aci_asin_half(a > 0.5f ? __builtin_sqrtf(z) : a, z);
  float near = aci_float32(aci_bits32(r) | (aci_bits32(x) & 0x80000000u));
  float y = (ACI_PI_2_HI - near) + ACI_PI_2_LO;
  y = x > 0.5f ? r + r : y;
  y = x < -0.5f ? aci_fma32(-2.0f, r, ACI_PI_HI) + ACI_PI_LO : y;
  return a <= 1.0f ? y : NAN;
}

#endif
