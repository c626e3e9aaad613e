/* Elementary functions of f32 for kernels. They are branch-free, so that a loop over them becomes
 * vector code. They give the same bits on every ISA, because the only roundings are the ones
 * written here (explicit fma, and the build forbids contraction).
 *
 * Called from the scalar formulas of ops through the type-generic names at the end (m_exp(x),
 * m_tanh(x), ...): float takes these functions, double takes libm. Errors against the exact result:
 * log 0.8 ulp, exp erf 1.1, expm1 log1p tanh 1.5, sin cos 1.6, sigmoid 2.3, pow log2 log10 0.6,
 * exp2 1.7. Conversions are exact or round to nearest even. Infinities, NaN, denormals and signed
 * zeros come out as in C's Annex F. Needs the default rounding mode, and neither FTZ nor DAZ. */
#ifndef ACI_VMATH_H
#define ACI_VMATH_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/hostdev.h"

#define ACI_VM AC_HOSTDEV static inline __attribute__((always_inline, unused))

#ifdef __CUDA_ARCH__
#define aci_fma32(a, b, c) fmaf(a, b, c)
#define aci_fma64(a, b, c) fma(a, b, c)
#else
#define aci_fma32(a, b, c) __builtin_fmaf(a, b, c)
#define aci_fma64(a, b, c) __builtin_fma(a, b, c)
#endif

ACI_VM uint32_t aci_bits32(float x) {
  uint32_t u;
  memcpy(&u, &x, 4);
  return u;
}
ACI_VM float aci_float32(uint32_t u) {
  float x;
  memcpy(&x, &u, 4);
  return x;
}
ACI_VM uint64_t aci_bits64(double x) {
  uint64_t u;
  memcpy(&u, &x, 8);
  return u;
}
ACI_VM double aci_float64(uint64_t u) {
  double x;
  memcpy(&x, &u, 8);
  return x;
}

/* ---- conversions of 16-bit floats ---- */
ACI_VM float aci_bf16_to_f32(uint16_t h) { return aci_float32((uint32_t)h << 16); }
ACI_VM uint16_t aci_f32_to_bf16(float x) {
  uint32_t u = aci_bits32(x);
  uint32_t nan = (u >> 16) | 0x40u;
  uint32_t rne = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : rne);
}
ACI_VM float aci_f16_to_f32(uint16_t h) {
  uint32_t m = (uint32_t)(h & 0x7fffu) << 13, sign = (uint32_t)(h & 0x8000u) << 16;
  uint32_t finite = aci_bits32(aci_float32(m) * 0x1p112f); /* rebias. Exact, denormals included */
  uint32_t special = m | 0x7f800000u | (m > 0x0f800000u ? 0x400000u : 0u);
  return aci_float32(sign | (m >= 0x0f800000u ? special : finite));
}
ACI_VM uint16_t aci_f32_to_f16(float x) {
  uint32_t u = aci_bits32(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  /* below 2^-14 the sum with 0.5 rounds at the spacing of f16 denormals */
  uint32_t small = aci_bits32(aci_float32(a) + 0.5f) - 0x3f000000u;
  uint32_t normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
  uint32_t nan = 0x7e00u | ((a >> 13) & 0x3ffu);
  uint32_t h = a < 0x38800000u ? small : normal;
  h = a >= 0x477ff000u ? 0x7c00u : h; /* 65520 and up round to infinity */
  h = a > 0x7f800000u ? nan : h;
  return (uint16_t)(sign | h);
}

/* ---- exponentials ---- */
/* Round to an integer by adding 1.5 * 2^23. The low bits of the sum are that integer. */
#define ACI_ROUND32 12582912.0f
#define ACI_LOG2E 0x1.715476p+0f
#define ACI_LN2_HI 0x1.62e400p-1f /* 15 bits: times an 8-bit integer it is exact */
#define ACI_LN2_LO 0x1.7f7d1cp-20f

/* -126 <= n <= 127 */
ACI_VM float aci_pow2i(int32_t n) { return aci_float32((uint32_t)(n + 127) << 23); }

ACI_VM float aci_expf(float x) {
  /* |x| cut to 104 as an integer: float comparisons that keep NaN cost more than the polynomial */
  uint32_t size = aci_bits32(x) & 0x7fffffffu, cut = size < 0x42d00000u ? size : 0x42d00000u;
  float c = aci_float32((aci_bits32(x) & 0x80000000u) | cut);
  float t = aci_fma32(c, ACI_LOG2E, ACI_ROUND32);
  float n = t - ACI_ROUND32;
  int32_t i = (int32_t)(aci_bits32(t) - 0x4b400000u);
  float r = aci_fma32(n, -ACI_LN2_HI, c);
  r = aci_fma32(n, -ACI_LN2_LO, r);
  float q = 0x1.6a53dp-10f;
  q = aci_fma32(q, r, 0x1.12397cp-7f);
  q = aci_fma32(q, r, 0x1.5558aap-5f);
  q = aci_fma32(q, r, 0x1.555492p-3f);
  q = aci_fma32(q, r, 0x1.fffffcp-2f);
  float p = aci_fma32(q, r * r, r) + 1.0f;
  int32_t h = i >> 1; /* two factors, so that the result may be denormal or infinite */
  float y = p * aci_pow2i(h) * aci_pow2i(i - h);
  return x != x ? x : y;
}

ACI_VM float aci_expm1f(float x) {
  float c = x > 89.0f ? 89.0f : x;
  c = c < -30.0f ? -30.0f : c;
  float t = aci_fma32(c, ACI_LOG2E, ACI_ROUND32);
  float n = t - ACI_ROUND32;
  int32_t i = (int32_t)(aci_bits32(t) - 0x4b400000u);
  float hi = aci_fma32(n, -ACI_LN2_HI, c), lo = n * ACI_LN2_LO;
  float r = hi - lo, tail = (hi - r) - lo; /* r + tail is the reduced argument */
  float q = 0x1.9a17d0p-13f;
  q = aci_fma32(q, r, 0x1.6d45b8p-10f);
  q = aci_fma32(q, r, 0x1.1115ecp-7f);
  q = aci_fma32(q, r, 0x1.5554eep-5f);
  q = aci_fma32(q, r, 0x1.555552p-3f);
  q = aci_fma32(q, r, 0.5f);
  float p = r + aci_fma32(q, r * r, aci_fma32(tail, r, tail));
  float s = aci_pow2i(i - 1); /* half the scale: i may be 128 */
  float y = aci_fma32(p, s, s - 0.5f) * 2.0f;
  return aci_float32(aci_bits32(x) & 0x7fffffffu) < 0x1p-25f ? x : y;
}

/* ---- logarithms ---- */
/* log(1 + f) + e ln 2 for 1 + f in [sqrt(1/2), sqrt 2). */
ACI_VM float aci_log_poly(float f, float e) {
  float p = -0x1.dc22f8p-5f;
  p = aci_fma32(p, f, 0x1.af54bap-4f);
  p = aci_fma32(p, f, -0x1.bc6d3ap-4f);
  p = aci_fma32(p, f, 0x1.c50fb2p-4f);
  p = aci_fma32(p, f, -0x1.fcd544p-4f);
  p = aci_fma32(p, f, 0x1.2483a6p-3f);
  p = aci_fma32(p, f, -0x1.5563d0p-3f);
  p = aci_fma32(p, f, 0x1.999a80p-3f);
  p = aci_fma32(p, f, -0x1.ffffd4p-3f);
  p = aci_fma32(p, f, 0x1.555554p-2f);
  float f2 = f * f;
  float low = aci_fma32(p * f, f2, aci_fma32(-0.5f, f2, e * ACI_LN2_LO));
  float hi = e * ACI_LN2_HI, s = hi + f; /* |hi| > |f| or hi = 0: the error of s is exact */
  float err = hi == 0.0f ? 0.0f : f - (s - hi);
  return s + (low + err);
}

ACI_VM float aci_logf(float x) {
  uint32_t ux = aci_bits32(x);
  float tiny = ux < 0x00800000u ? 1.0f : 0.0f;
  uint32_t u = ux < 0x00800000u ? aci_bits32(x * 0x1p23f) : ux;
  int32_t e = (int32_t)(u - 0x3f3504f3u) >> 23;
  float f = aci_float32(u - ((uint32_t)e << 23)) - 1.0f;
  float y = aci_log_poly(f, aci_fma32(tiny, -23.0f, (float)e));
  y = x == 0.0f ? -INFINITY : y;
  y = x < 0.0f ? NAN : y;
  return x == INFINITY || x != x ? x : y;
}

ACI_VM float aci_log1pf(float x) {
  float u = x + 1.0f, v = u - x;
  float lo = (x - (u - v)) + (1.0f - v); /* u + lo = 1 + x exactly */
  int32_t e = (int32_t)(aci_bits32(u) - 0x3f3504f3u) >> 23;
  float m = aci_float32(aci_bits32(u) - ((uint32_t)e << 23));
  float f = (m - 1.0f) + lo * aci_float32((uint32_t)(e > 127 ? 0 : 127 - e) << 23);
  float y = aci_log_poly(f, (float)e);
  y = aci_float32(aci_bits32(x) & 0x7fffffffu) < 0x1p-25f ? x : y;
  y = x == -1.0f ? -INFINITY : y;
  y = x < -1.0f ? NAN : y;
  return x == INFINITY || x != x ? x : y;
}

/* ---- hyperbolic and error functions ---- */
ACI_VM float aci_tanhf(float x) {
  float a = aci_float32(aci_bits32(x) & 0x7fffffffu), z = x * x;
  float p = 0x1.1a2814p-9f;
  p = aci_fma32(p, z, -0x1.0c5ed0p-7f);
  p = aci_fma32(p, z, 0x1.63a558p-6f);
  p = aci_fma32(p, z, -0x1.b9f188p-5f);
  p = aci_fma32(p, z, 0x1.11107ap-3f);
  p = aci_fma32(p, z, -0x1.555554p-2f);
  float small = aci_fma32(p * z, a, a);
  float big = 1.0f - 2.0f / (aci_expf(a + a) + 1.0f);
  float y = a < 0.625f ? small : big;
  return aci_float32(aci_bits32(y) | (aci_bits32(x) & 0x80000000u));
}

/* 1 / (1 + e^-x), without overflow and with full accuracy on both sides. */
ACI_VM float aci_sigmoidf(float x) {
  float z = aci_expf(-aci_float32(aci_bits32(x) & 0x7fffffffu));
  return (x >= 0.0f ? 1.0f : z) / (1.0f + z);
}

ACI_VM float aci_erff(float x) {
  float a = aci_float32(aci_bits32(x) & 0x7fffffffu), z = x * x;
  float p = 0x1.5cfc22p-14f;
  p = aci_fma32(p, z, -0x1.aa326ap-11f);
  p = aci_fma32(p, z, 0x1.54c2b4p-8f);
  p = aci_fma32(p, z, -0x1.b80d7p-6f);
  p = aci_fma32(p, z, 0x1.ce2dfp-4f);
  p = aci_fma32(p, z, -0x1.812742p-2f);
  p = aci_fma32(p, z, 0x1.06eba8p-3f);
  float small = aci_fma32(p, x, x);
  /* beyond, erfc(a) = exp(polynomial): its error counts only times erfc(a) < 0.2 */
  float c = a > 4.0f ? 4.0f : a;
  float q = -0x1.622d56p-16f;
  q = aci_fma32(q, c, 0x1.c7c81ep-12f);
  q = aci_fma32(q, c, -0x1.116d16p-8f);
  q = aci_fma32(q, c, 0x1.9b9b62p-6f);
  q = aci_fma32(q, c, -0x1.bb8922p-4f);
  q = aci_fma32(q, c, -0x1.44456ep-1f);
  q = aci_fma32(q, c, -0x1.21280cp+0f);
  q = aci_fma32(q, c, 0x1.6f6646p-13f);
  float big = 1.0f - aci_expf(q);
  big = aci_float32(aci_bits32(big) | (aci_bits32(x) & 0x80000000u));
  float y = a < 0.921875f ? small : big;
  return x != x ? x : y;
}

/* ---- circular functions ---- */
typedef struct aci_angle {
  float r;    /* in [-pi/4, pi/4] */
  uint32_t q; /* |x| = r + q pi/2 modulo 2 pi */
} aci_angle;

/* Payne-Hanek for every |x|: the 24-bit significand times a 96-bit window of 2/pi, modulo 4, in
 * integers. */
ACI_VM aci_angle aci_reduce_angle(float x) {
  static const uint32_t two_over_pi[8] = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                          0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};
  uint32_t u = aci_bits32(x) & 0x7fffffffu;
  uint32_t e = u >> 23;
  e = e < 126u ? 126u : e;
  /* the window starts at the bit that weighs 2 */
  uint32_t at = e - 120u, w = at >> 5, sh = at & 31u;
  uint64_t ab = (uint64_t)two_over_pi[w] << 32 | two_over_pi[w + 1];
  uint64_t bc = (uint64_t)two_over_pi[w + 1] << 32 | two_over_pi[w + 2];
  uint64_t cd = (uint64_t)two_over_pi[w + 2] << 32 | two_over_pi[w + 3];
  uint64_t w0 = ab << sh >> 32, w1 = bc << sh >> 32, w2 = cd << sh >> 32;
  uint64_t m = (u & 0x7fffffu) | 0x800000u;
  uint64_t acc = ((m * w0) << 32) + m * w1 + ((m * w2) >> 32);
  uint64_t frac = acc << 2;
  double d = (double)(int32_t)(frac >> 32) + (double)(int32_t)((uint32_t)frac >> 1) * 0x1p-31;
  float a = aci_float32(u);
  int small = a < 0x1.921fb4p-1f;
  aci_angle g;
  g.r = small ? a : (float)(d * 0x1.921fb54442d18p-32);
  g.q = small ? 0u : (uint32_t)((acc + (UINT64_C(1) << 61)) >> 62);
  return g;
}
ACI_VM float aci_sin_poly(float r) {
  float z = r * r;
  float p = 0x1.7864bep-19f;
  p = aci_fma32(p, z, -0x1.a04a74p-13f);
  p = aci_fma32(p, z, 0x1.111166p-7f);
  p = aci_fma32(p, z, -0x1.555556p-3f);
  return aci_fma32(p * z, r, r);
}
ACI_VM float aci_cos_poly(float r) {
  float z = r * r;
  float p = 0x1.99e910p-16f;
  p = aci_fma32(p, z, -0x1.6c0c2ap-10f);
  p = aci_fma32(p, z, 0x1.55554ap-5f);
  return aci_fma32(z * z, p, aci_fma32(-0.5f, z, 1.0f));
}
/* sin(r + q pi/2) */
ACI_VM float aci_sin_quadrant(float r, uint32_t q) {
  float y = (q & 1u) ? aci_cos_poly(r) : aci_sin_poly(r);
  return aci_float32(aci_bits32(y) ^ ((q & 2u) << 30));
}
ACI_VM float aci_sinf(float x) {
  aci_angle g = aci_reduce_angle(x);
  float y = aci_sin_quadrant(g.r, g.q);
  y = aci_float32(aci_bits32(y) ^ (aci_bits32(x) & 0x80000000u));
  return (aci_bits32(x) & 0x7f800000u) == 0x7f800000u ? x - x : y;
}
ACI_VM float aci_cosf(float x) {
  aci_angle g = aci_reduce_angle(x);
  float y = aci_sin_quadrant(g.r, g.q + 1u);
  return (aci_bits32(x) & 0x7f800000u) == 0x7f800000u ? x - x : y;
}
/* sin and cos of 2 pi u for |u| <= 2^20, without a table. Used by random normals. */
ACI_VM aci_angle aci_reduce_turn(float u) {
  float t = u * 4.0f, k = t + ACI_ROUND32;
  float f = t - (k - ACI_ROUND32); /* exact */
  aci_angle g;
  g.q = aci_bits32(k) - 0x4b400000u;
  g.r = aci_fma32(f, 0x1.921fb6p+0f, f * -0x1.777a5cp-25f);
  return g;
}
ACI_VM float aci_sin2pif(float u) {
  aci_angle g = aci_reduce_turn(u);
  return aci_sin_quadrant(g.r, g.q);
}
ACI_VM float aci_cos2pif(float u) {
  aci_angle g = aci_reduce_turn(u);
  return aci_sin_quadrant(g.r, g.q + 1u);
}

/* ---- logarithm to base 2 in double, and the functions built on it ---- */
/* Of a positive float (0 and infinity give numbers that their callers replace): relative error
 * below 2^-35. */
ACI_VM double aci_log2_wide(float x) {
  uint32_t ux = aci_bits32(x);
  float tiny = ux < 0x00800000u ? -23.0f : 0.0f;
  uint32_t u = ux < 0x00800000u ? aci_bits32(x * 0x1p23f) : ux;
  int32_t e = (int32_t)(u - 0x3f3504f3u) >> 23;
  double f = (double)aci_float32(u - ((uint32_t)e << 23)) - 1.0;
  double l = 0x1.3cc53d98a991dp-4;
  l = aci_fma64(l, f, -0x1.247f6d2b22fefp-3);
  l = aci_fma64(l, f, 0x1.287600fbaf74ap-3);
  l = aci_fma64(l, f, -0x1.2531b691526b6p-3);
  l = aci_fma64(l, f, 0x1.4528bff2ebcb1p-3);
  l = aci_fma64(l, f, -0x1.714133784aea6p-3);
  l = aci_fma64(l, f, 0x1.a63f47e14ac4ep-3);
  l = aci_fma64(l, f, -0x1.ec72b83056a01p-3);
  l = aci_fma64(l, f, 0x1.277651f38ad8fp-2);
  l = aci_fma64(l, f, -0x1.71547091dafe6p-2);
  l = aci_fma64(l, f, 0x1.ec709ebba82e6p-2);
  l = aci_fma64(l, f, -0x1.7154765660c24p-1);
  l = aci_fma64(l, f, 0x1.71547652a1e71p+0);
  return aci_fma64(l, f, (double)((float)e + tiny));
}

/* log2 x times scale, rounded once. */
ACI_VM float aci_log_base(float x, double scale) {
  float y = (float)(aci_log2_wide(x) * scale);
  y = x == 0.0f ? -INFINITY : y;
  y = x < 0.0f ? NAN : y;
  y = x == INFINITY ? x : y;
  return x != x ? x : y;
}
ACI_VM float aci_log2f(float x) { return aci_log_base(x, 1.0); }
ACI_VM float aci_log10f(float x) { return aci_log_base(x, 0x1.34413509f79ffp-2); }

/* 2^x. The reduction is exact. */
ACI_VM float aci_exp2f(float x) {
  float c = x > 129.0f ? 129.0f : x;
  c = c < -151.0f ? -151.0f : c;
  float t = c + ACI_ROUND32;
  int32_t i = (int32_t)(aci_bits32(t) - 0x4b400000u);
  float p = aci_expf((c - (t - ACI_ROUND32)) * 0x1.62e430p-1f);
  int32_t h = i >> 1;
  return p * aci_pow2i(h) * aci_pow2i(i - h);
}

/* 2^(y log2 x) with both halves in double, rounded once. Selections are flat: one inside a
 * condition keeps the loop from becoming vector code. */
ACI_VM float aci_powf(float x, float y) {
  float ax = aci_float32(aci_bits32(x) & 0x7fffffffu);
  float ay = aci_float32(aci_bits32(y) & 0x7fffffffu);
  double t = (double)y * aci_log2_wide(ax);
  t = t > 200.0 ? 200.0 : t;
  t = t < -200.0 ? -200.0 : t;
  double k = t + 0x1.8p52;
  double r = t - (k - 0x1.8p52);
  double p = 0x1.41d2fb63ba4dep-13;
  p = aci_fma64(p, r, 0x1.5f4597aaa6ef6p-10);
  p = aci_fma64(p, r, 0x1.3b2dbc8331291p-7);
  p = aci_fma64(p, r, 0x1.c6aed4605e89dp-5);
  p = aci_fma64(p, r, 0x1.ebfbdadaea828p-3);
  p = aci_fma64(p, r, 0x1.62e430c82a395p-1);
  p = aci_fma64(p, r, 0x1.00000002625fbp+0);
  float z = (float)(p * aci_float64((aci_bits64(k) + 1023u) << 52));

  float half = y * 0.5f; /* y is odd when it is whole and its half is not */
  uint32_t whole = __builtin_truncf(y) == y ? 0xffffffffu : 0u;
  uint32_t odd = __builtin_truncf(half) == half ? 0u : whole;
  float up = y < 0.0f ? 0.0f : INFINITY, down = y < 0.0f ? INFINITY : 0.0f;
  z = ax == 0.0f ? down : z;
  z = ax == INFINITY ? up : z;
  float far = ax > 1.0f ? up : down;
  far = ax == 1.0f ? 1.0f : far;
  z = ay == INFINITY ? far : z;
  z = aci_float32(aci_bits32(z) | (aci_bits32(x) & odd & 0x80000000u));
  float root = ax == INFINITY ? z : NAN;
  root = whole != 0u ? z : root;
  z = x < 0.0f ? root : z;
  z = x != x ? x : z;
  z = y != y ? y : z;
  z = x == 1.0f ? 1.0f : z;
  return y == 0.0f ? 1.0f : z;
}

/* ---- common names for functions of C and libm ---- */
/* NaN in either operand gives NaN, as in PyTorch's maximum and minimum. */
ACI_VM float aci_maxf(float a, float b) { return a > b || a != a ? a : b; }
ACI_VM float aci_minf(float a, float b) { return a < b || a != a ? a : b; }
ACI_VM double aci_max(double a, double b) { return a > b || a != a ? a : b; }
ACI_VM double aci_min(double a, double b) { return a < b || a != a ? a : b; }
ACI_VM double aci_sigmoid(double x) {
  double z = exp(-fabs(x));
  return (x >= 0.0 ? 1.0 : z) / (1.0 + z);
}

#ifndef __cplusplus
#define ACI_VM1(x, f32, f64) _Generic((x), double : f64, default : f32)(x)
#define ACI_VM2(a, b, f32, f64) _Generic((a) + (b), double : f64, default : f32)(a, b)
#define m_exp(x) ACI_VM1(x, aci_expf, exp)
#define m_expm1(x) ACI_VM1(x, aci_expm1f, expm1)
#define m_log(x) ACI_VM1(x, aci_logf, log)
#define m_log1p(x) ACI_VM1(x, aci_log1pf, log1p)
#define m_tanh(x) ACI_VM1(x, aci_tanhf, tanh)
#define m_sigmoid(x) ACI_VM1(x, aci_sigmoidf, aci_sigmoid)
#define m_sin(x) ACI_VM1(x, aci_sinf, sin)
#define m_cos(x) ACI_VM1(x, aci_cosf, cos)
#define m_erf(x) ACI_VM1(x, aci_erff, erf)
#define m_pow(x, y) ACI_VM2(x, y, aci_powf, pow)
#define m_exp2(x) ACI_VM1(x, aci_exp2f, exp2)
#define m_log2(x) ACI_VM1(x, aci_log2f, log2)
#define m_log10(x) ACI_VM1(x, aci_log10f, log10)
#define m_sqrt(x) ACI_VM1(x, __builtin_sqrtf, __builtin_sqrt)
#define m_abs(x) ACI_VM1(x, __builtin_fabsf, __builtin_fabs)
#define m_floor(x) ACI_VM1(x, __builtin_floorf, __builtin_floor)
#define m_ceil(x) ACI_VM1(x, __builtin_ceilf, __builtin_ceil)
#define m_trunc(x) ACI_VM1(x, __builtin_truncf, __builtin_trunc)
#define m_rint(x) ACI_VM1(x, __builtin_rintf, __builtin_rint)
#define m_fma(a, b, c) \
  _Generic((a) + (b) + (c), double : __builtin_fma, default : __builtin_fmaf)(a, b, c)
#define m_max(a, b) ACI_VM2(a, b, aci_maxf, aci_max)
#define m_min(a, b) ACI_VM2(a, b, aci_minf, aci_min)
#define m_copysign(a, b) ACI_VM2(a, b, __builtin_copysignf, __builtin_copysign)
#else
/* C++ and CUDA: the same names as overloads. */
#define ACI_VM1(x, f32, f64) (sizeof(x) == 8 ? f64(x) : f32(x))
#define ACI_VM2(a, b, f32, f64) (sizeof((a) + (b)) == 8 ? f64(a, b) : f32(a, b))
#define ACI_VMX1(name, f32, f64)                \
  ACI_VM float name(float x) { return f32(x); } \
  ACI_VM double name(double x) { return f64(x); }
#define ACI_VMX2(name, f32, f64)                            \
  ACI_VM float name(float a, float b) { return f32(a, b); } \
  ACI_VM double name(double a, double b) { return f64(a, b); }
ACI_VMX1(m_exp, aci_expf, exp)
ACI_VMX1(m_expm1, aci_expm1f, expm1)
ACI_VMX1(m_log, aci_logf, log)
ACI_VMX1(m_log1p, aci_log1pf, log1p)
ACI_VMX1(m_tanh, aci_tanhf, tanh)
ACI_VMX1(m_sigmoid, aci_sigmoidf, aci_sigmoid)
ACI_VMX1(m_sin, aci_sinf, sin)
ACI_VMX1(m_cos, aci_cosf, cos)
ACI_VMX1(m_erf, aci_erff, erf)
ACI_VMX2(m_pow, aci_powf, pow)
ACI_VMX1(m_exp2, aci_exp2f, exp2)
ACI_VMX1(m_log2, aci_log2f, log2)
ACI_VMX1(m_log10, aci_log10f, log10)
ACI_VMX1(m_sqrt, sqrtf, sqrt)
ACI_VMX1(m_abs, fabsf, fabs)
ACI_VMX1(m_floor, floorf, floor)
ACI_VMX1(m_ceil, ceilf, ceil)
ACI_VMX1(m_trunc, truncf, trunc)
ACI_VMX1(m_rint, rintf, rint)
ACI_VMX2(m_max, aci_maxf, aci_max)
ACI_VMX2(m_min, aci_minf, aci_min)
ACI_VMX2(m_copysign, copysignf, copysign)
ACI_VM float m_fma(float a, float b, float c) { return aci_fma32(a, b, c); }
ACI_VM double m_fma(double a, double b, double c) { return aci_fma64(a, b, c); }
#endif

#endif
