/* Floats of 8 bits by arithmetic on the bits of f32, so that loops over rows vectorise. Values
 * match tensor/convert.h. Used by the CPU's rows (ops/map/convert.c), the kernels of fp8 on CUDA
 * (ops/quant/fp8.cu) and the stand-in for cuBLASLt.
 *
 * A code moved to where f32 has exponent and fraction is the value times 2^-120 (e5m2: 2^-112),
 * subnormals too. In the other direction the dropped bits are rounded to even. Below the smallest
 * normal, adding a number whose spacing is that of subnormals does the rounding. */
#ifndef ACI_FLOAT8_H
#define ACI_FLOAT8_H
#include "base/vmath.h"

#define ACI_E4M3_MAX 448.0f
#define ACI_E5M2_MAX 57344.0f

ACI_VM float aci_e4m3_value(uint8_t b) {
  const float a = aci_float32((uint32_t)(b & 0x7f) << 20) * 0x1p120f,
              v = (b & 0x7f) == 0x7f ? aci_float32(0x7fc00000u) : a;
  return b & 0x80 ? -v : v;
}
ACI_VM float aci_e5m2_value(uint8_t b) {
  const float a = aci_float32((uint32_t)(b & 0x7f) << 21) * 0x1p112f,
              special = aci_float32(b & 3 ? 0x7fc00000u : 0x7f800000u);
  const float v = (b & 0x7c) == 0x7c ? special : a;
  return b & 0x80 ? -v : v;
}
ACI_VM uint8_t aci_float8_bits(float x, int drop, uint32_t bias, float smallest, float magic,
                               float top, uint32_t most) {
  const uint32_t u = aci_bits32(x), sign = u >> 24 & 0x80;
  const float a = aci_float32(u & 0x7fffffffu);
  const uint32_t bits = u & 0x7fffffffu, half = (1u << (drop - 1)) - 1;
  const uint32_t normal = ((bits + half + (bits >> drop & 1)) >> drop) - bias,
                 small = aci_bits32(a + magic) - aci_bits32(magic);
  uint32_t code = a < smallest ? small : normal;
  code = a < top ? code : most;
  code = bits > 0x7f800000u ? 0x7f : code;
  return (uint8_t)(code | sign);
}
/* Values that are too large become 448 or, in e5m2 as in IEEE 754, infinity. NaN stays NaN. */
ACI_VM uint8_t aci_e4m3_bits(float x) {
  return aci_float8_bits(x, 20, 120u << 3, 0x1p-6f, 0x1p14f, 448.0f, 0x7e);
}
ACI_VM uint8_t aci_e5m2_bits(float x) {
  return aci_float8_bits(x, 21, 112u << 2, 0x1p-14f, 0x1p7f, 65536.0f, 0x7c);
}

/* x scaled and clamped to the format's range (NaN stays), as fp8 training stores values:
 * TransformerEngine, torchao. */
ACI_VM uint8_t aci_e4m3_saturated(float x) { return aci_e4m3_bits(x); }
ACI_VM uint8_t aci_e5m2_saturated(float x) {
  const float low = x < -ACI_E5M2_MAX ? -ACI_E5M2_MAX : x;
  return aci_e5m2_bits(low > ACI_E5M2_MAX ? ACI_E5M2_MAX : low);
}

/* The scale by which values up to amax fill a format up to `most`: most / max(amax, 1e-12), as
 * torchao computes it (in f64, rounded once). With pow2 and amax > 0: the largest power of two
 * below that (MS-AMP, and torchao's round_scales_to_power_of_2). 1 if amax is not finite. */
ACI_VM float aci_float8_scale(float amax, float most, int pow2) {
  if (!(amax <= 3.4028234663852886e38f)) return 1;
  const float s = (float)((double)most / (amax > 1e-12f ? (double)amax : 1e-12));
  return pow2 ? aci_float32(aci_bits32(s) & 0x7f800000u) : s;
}

#endif
