/* Random numbers that are functions of their place: Philox4x32-10 (Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3", SC11) from (key, counter), and the one way from its bits to
 * uniforms and normals. Used by random ops, dropout and initialisation, on the CPU and in CUDA
 * kernels.
 *
 * Both sides draw the same values: the conversions use integer operations, IEEE sqrt and division,
 * and products that only feed explicit fma's, so there is nothing a compiler may contract. No libm
 * call: those differ between the two. Everything is free of branches and vectorises. */
#ifndef ACI_PHILOX_H
#define ACI_PHILOX_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/hostdev.h"

typedef struct aci_u32x4 {
  uint32_t v[4];
} aci_u32x4;

/* The four words of a counter. Words of key and counter run from the low half up. */
AC_HOSTDEV static inline aci_u32x4 aci_philox(uint64_t key, uint64_t counter_lo,
                                              uint64_t counter_hi) {
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  uint32_t c0 = (uint32_t)counter_lo, c1 = (uint32_t)(counter_lo >> 32);
  uint32_t c2 = (uint32_t)counter_hi, c3 = (uint32_t)(counter_hi >> 32);
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u; /* the golden ratio and sqrt(3) - 1, as 32-bit fractions */
    k1 += 0xBB67AE85u;
  }
  aci_u32x4 r = {{c0, c1, c2, c3}};
  return r;
}

AC_HOSTDEV static inline uint64_t aci_u64_of(uint32_t lo, uint32_t hi) {
  return (uint64_t)hi << 32 | lo;
}

/* Uniform in [0,1): the top 24 (53) bits, every value exact. */
AC_HOSTDEV static inline float aci_uniform_f32(uint32_t x) { return (float)(x >> 8) * 0x1p-24f; }
AC_HOSTDEV static inline double aci_uniform_f64(uint64_t x) { return (double)(x >> 11) * 0x1p-53; }

/* Uniform in 0..n-1 (n >= 1): the high half of x * n. The bias is below n / 2^64. */
AC_HOSTDEV static inline uint64_t aci_uniform_below(uint64_t x, uint64_t n) {
  uint64_t x0 = (uint32_t)x, x1 = x >> 32, n0 = (uint32_t)n, n1 = n >> 32;
  uint64_t low = x0 * n0 >> 32, mid = x1 * n0 + low, mid2 = x0 * n1 + (uint32_t)mid;
  return x1 * n1 + (mid >> 32) + (mid2 >> 32);
}

/* ---- normals: Box-Muller ----
 * The polynomials are truncated Chebyshev series of our own, on exactly the ranges that occur. */

/* log(u) for 2^-33 <= u <= 1, within 1.5 ulp. u = m 2^e, m in [sqrt(1/2), sqrt(2)), f = m - 1:
 * log(1+f) = f + f^2 (-1/2 + f P(f)). */
AC_HOSTDEV static inline float aci_log_f32(float u) {
  uint32_t bits;
  memcpy(&bits, &u, sizeof bits);
  int32_t e = (int32_t)(bits - 0x3F3504F3u) >> 23;
  bits -= (uint32_t)e << 23;
  float m, fe = (float)e;
  memcpy(&m, &bits, sizeof m);
  float f = m - 1.0f;
  float p = 0.071497538909f;
  p = fmaf(p, f, -0.115712007271f);
  p = fmaf(p, f, 0.116615110677f);
  p = fmaf(p, f, -0.12411050684f);
  p = fmaf(p, f, 0.14249936533f);
  p = fmaf(p, f, -0.166684802395f);
  p = fmaf(p, f, 0.200007074784f);
  p = fmaf(p, f, -0.249999890487f);
  p = fmaf(p, f, 0.333333311908f);
  float y = fmaf(f * f, fmaf(f, p, -0.5f), f);
  return fmaf(fe, 0x1.62e4p-1f,
              fmaf(fe, 0x1.7f7d1cp-20f, y)); /* ln 2, upper 15 bits exact in e times it, and rest */
}

/* Two independent standard normals from 64 random bits. |z| <= 6.76. */
AC_HOSTDEV static inline void aci_normal2_f32(uint32_t a, uint32_t b, float *z0, float *z1) {
  float r = sqrtf(-2.0f * aci_log_f32(fmaf((float)a, 0x1p-32f, 0x1p-33f)));
  /* The angle is b / 2^32 turns: the nearest quarter turn q, and the offset t from it, in [-1/2,
   * 1/2) quarters. Both are exact. */
  uint32_t q = (b + 0x20000000u) >> 30;
  float t = (float)(int32_t)(b << 2) * 0x1p-32f, w = t * t;
  float s = -0.0046021631049581197648f;
  s = fmaf(s, w, 0.079680222858169062741f);
  s = fmaf(s, w, -0.64596347815342243813f);
  s = fmaf(s, w, 1.5707963219600266799f);
  s = s * t; /* sin(pi/2 t) */
  float c = 0.00090674171996886530497f;
  c = fmaf(c, w, -0.020861529025383647083f);
  c = fmaf(c, w, 0.25366941042117206302f);
  c = fmaf(c, w, -1.2337005493751095486f);
  c = fmaf(c, w, 1.0f); /* cos(pi/2 t) */
  float cq = q & 1 ? s : c, sq = q & 1 ? c : s;
  *z0 = r * ((q + 1) & 2 ? -cq : cq);
  *z1 = r * (q & 2 ? -sq : sq);
}

/* log(u) for 2^-54 <= u <= 1, within 2 ulp. s = f / (2 + f): log(1+f) = 2 s + s^3 Q(s^2). */
AC_HOSTDEV static inline double aci_log_f64(double u) {
  uint64_t bits;
  memcpy(&bits, &u, sizeof bits);
  int64_t e = (int64_t)(bits - 0x3FE6A09E667F3BCDull) >> 52;
  bits -= (uint64_t)e << 52;
  double m, fe = (double)(int32_t)e;
  memcpy(&m, &bits, sizeof m);
  double f = m - 1.0, s = f / (m + 1.0), z = s * s;
  double p = 0.14617093237558203397;
  p = fma(p, z, 0.15331664799306262106);
  p = fma(p, z, 0.18182891005049770803);
  p = fma(p, z, 0.22222211106127090466);
  p = fma(p, z, 0.28571428626173057435);
  p = fma(p, z, 0.39999999999899006708);
  p = fma(p, z, 0.66666666666666697065);
  double y = fma(s * z, p, s + s);
  return fma(fe, 0x1.62e42fefa39efp-1, fma(fe, 0x1.abc9e3b39803fp-56, y));
}

/* Two independent standard normals from 128 random bits. |z| <= 8.66. */
AC_HOSTDEV static inline void aci_normal2_f64(uint64_t a, uint64_t b, double *z0, double *z1) {
  double r = sqrt(-2.0 * aci_log_f64(fma((double)(a >> 11), 0x1p-53, 0x1p-54)));
  uint64_t q = (b + (1ull << 61)) >> 62;
  double t = (double)(int64_t)(b << 2) * 0x1p-64, w = t * t;
  double s = 5.633936132273839028e-8;
  s = fma(s, w, -3.5986433706134925899e-6);
  s = fma(s, w, 0.00016044115074714990863);
  s = fma(s, w, -0.0046817541323416188617);
  s = fma(s, w, 0.079692626246043040805);
  s = fma(s, w, -0.64596409750624431654);
  s = fma(s, w, 1.5707963267948966143);
  s = s * t;
  double c = -6.3293983980383578578e-9;
  c = fma(c, w, 4.7106784209037801807e-7);
  c = fma(c, w, -0.000025202039028462278323);
  c = fma(c, w, 0.00091926027454690076451);
  c = fma(c, w, -0.020863480763340775811);
  c = fma(c, w, 0.25366950790104782328);
  c = fma(c, w, -1.2337005501361698269);
  c = fma(c, w, 1.0);
  double cq = q & 1 ? s : c, sq = q & 1 ? c : s;
  *z0 = r * ((q + 1) & 2 ? -cq : cq);
  *z1 = r * (q & 2 ? -sq : sq);
}

#endif
