/* Formulas that turn random bits into numbers of a distribution, on the CPU and in CUDA kernels. They use the
 * functions of philox.h alone, so that both draw the same values. */
#ifndef ACI_OPS_DISTRIBUTIONS_H
#define ACI_OPS_DISTRIBUTIONS_H
#include "base/philox.h"

/* ln of a uniform number in (0, 1], never 0 for bits other than the largest. */
AC_HOSTDEV static inline float aci_log_uniform_f32(uint32_t w) {
  return aci_log_f32(fmaf((float)w, 0x1p-32f, 0x1p-33f));
}
AC_HOSTDEV static inline double aci_log_uniform_f64(uint64_t w) {
  return aci_log_f64(fma((double)(w >> 11), 0x1p-53, 0x1p-54));
}

/* Exponential with rate 1, above 0. */
AC_HOSTDEV static inline float aci_exponential_f32(uint32_t w) {
  const float y = -aci_log_uniform_f32(w);
  return y > 0x1p-25f ? y : 0x1p-25f;
}
AC_HOSTDEV static inline double aci_exponential_f64(uint64_t w) {
  const double y = -aci_log_uniform_f64(w);
  return y > 0x1p-54 ? y : 0x1p-54;
}

/* Standard Cauchy: the cotangent of a uniform angle, as the ratio of two normals that have it. */
AC_HOSTDEV static inline float aci_cauchy_f32(uint32_t w) {
  float a, b;
  aci_normal2_f32(UINT32_C(1) << 31, w, &a, &b);
  return b == 0 ? 0x1p31f : a / b;
}
AC_HOSTDEV static inline double aci_cauchy_f64(uint64_t w) {
  double a, b;
  aci_normal2_f64(UINT64_C(1) << 63, w, &a, &b);
  return b == 0 ? 0x1p53 : a / b;
}

/* The number of the first success, from 1: rate = -ln(1 - p). */
AC_HOSTDEV static inline double aci_geometric(uint64_t w, double rate) {
  const double k = ceil(aci_exponential_f64(w) / rate);
  return k < 1 ? 1 : k;
}

/* Uniform number n of element i: each element owns 2^24 blocks of two. */
AC_HOSTDEV static inline uint64_t aci_bits_of_element(uint64_t key, uint64_t call, uint64_t i,
                                                      uint32_t n) {
  const aci_u32x4 w = aci_philox(key, (uint64_t)(n / 2) << 40 | i, call);
  return n % 2 == 0 ? aci_u64_of(w.v[0], w.v[1]) : aci_u64_of(w.v[2], w.v[3]);
}

/* ln k! by Stirling's series, exact to 1e-13. */
AC_HOSTDEV static inline double aci_log_factorial(double k) {
  double shift = 0, x = k + 1;
  for (; x < 10; x += 1) shift += aci_log_f64(x);
  const double r = 1 / x, r2 = r * r;
  const double rest = r * fma(r2, fma(r2, fma(r2, -1.0 / 1680, 1.0 / 1260), -1.0 / 360), 1.0 / 12);
  return (x - 0.5) * aci_log_f64(x) - x + 0.91893853320467274178 + rest - shift;
}

/* Poisson with this rate, for element i. Below 10 arrivals are counted. From there on it is Hoermann's transformed
 * rejection with squeeze (PTRS, 1993). */
AC_HOSTDEV static inline double aci_poisson(uint64_t key, uint64_t call, uint64_t i, double rate) {
  uint32_t n = 0;
  if (!(rate > 0)) return rate == 0 ? 0 : (double)NAN;
  if (rate < 10) {
    double k = 0, time = aci_exponential_f64(aci_bits_of_element(key, call, i, n++));
    for (; time < rate; k += 1) time += aci_exponential_f64(aci_bits_of_element(key, call, i, n++));
    return k;
  }
  const double b = 0.931 + 2.53 * sqrt(rate), a = fma(0.02483, b, -0.059);
  const double inv = 1.1239 + 1.1328 / (b - 3.4), edge = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    const double u = aci_uniform_f64(aci_bits_of_element(key, call, i, n)) - 0.5;
    const double v = 1 - aci_uniform_f64(aci_bits_of_element(key, call, i, n + 1));
    const double us = 0.5 - fabs(u), k = floor(fma(2 * a / us + b, u, rate + 0.43));
    n += 2;
    if (us >= 0.07 && v <= edge) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    const double left = aci_log_f64(v) + aci_log_f64(inv) - aci_log_f64(a / (us * us) + b);
    if (left <= k * aci_log_f64(rate) - rate - aci_log_factorial(k)) return k;
  }
}

#endif
