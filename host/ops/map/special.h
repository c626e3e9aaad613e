/* Functions of the special kind for maps, in double: digamma, Hurwitz's zeta, scaled erfc, inverses of
 * erf, modified Bessel functions. Maps of f32 round them once. CPU and CUDA run the same text, and
 * libm gives exp, log, pow, erf, erfc. Errors against the exact result in units of the last place of
 * f64, on the ranges that tests/host/ops/map/special_test.lua walks: i0e i1e 4, erfcx 5, erfinv
 * ndtri 8, zeta 20, digamma 8 apart from its zeros, where the error is 2e-16. */
#ifndef ACI_OPS_SPECIAL_H
#define ACI_OPS_SPECIAL_H
#include "base/vmath.h"

#define ACI_SPECIAL AC_HOSTDEV static inline __attribute__((unused))

/* The sum of c[i] T_i(t) by Clenshaw's recurrence, -1 <= t <= 1. */
#define ACI_CHEBYSHEV(c, t, result)                                 \
  do {                                                              \
    double u = 0, v = 0;                                            \
    for (int i = (int)(sizeof(c) / sizeof(c)[0]) - 1; i > 0; i--) { \
      const double w = aci_fma64(2 * (t), u, (c)[i] - v);           \
      v = u;                                                        \
      u = w;                                                        \
    }                                                               \
    result = aci_fma64(t, u, (c)[0] - v);                           \
  } while (0)

/* ---- modified Bessel functions: e^-|x| I_n(x). Chebyshev series of our own in |x| / 4 - 1 and
 * 16 / |x| - 1 ---- */
ACI_SPECIAL double aci_i0e(double x) {
  static const double near[30] = {
      0.338397637204738042,     -0.304682672343198399,    0.171620901522208775,
      -0.0949010970480476444,   0.0493052842396707085,    -0.0237374148058994688,
      0.0105464603945949983,    -0.00432430999505057594,  0.0016394756169413358,
      -0.000576375574538582366, 0.000188502885095841656,  -0.000057541950100821037,
      0.0000164484480707288971, -4.41673835845875056e-6,  1.11738753912010372e-6,
      -2.67079385394061173e-7,  6.04699502254191895e-8,   -1.30002500998624804e-8,
      2.65982372468238665e-9,   -5.18979560163526291e-10, 9.67580903537323691e-11,
      -1.72682629144155571e-11, 2.95505266312963983e-12,  -4.85644678311192946e-13,
      7.67618549860493562e-14,  -1.16853328779934517e-14, 1.71539128555513303e-15,
      -2.43127984654795469e-16, 3.3307945188222381e-17,   -4.41534164647933938e-18};
  static const double far[25] = {
      0.402245205507054416,     0.00336911647825569409,   0.0000688975834691682398,
      2.89137052083475648e-6,   2.04891858946906374e-7,   2.26666899049817806e-8,
      3.39623202570838635e-9,   4.94060238822496959e-10,  1.18891471078464383e-11,
      -3.14991652796324136e-11, -1.32158118404477131e-11, -1.79417853150680612e-12,
      7.18012445138366623e-13,  3.8527783827421427e-13,   1.54008621752140983e-14,
      -4.15056934728722209e-14, -9.55484669882830765e-15, 3.81168066935262242e-15,
      1.77256013305652641e-15,  -3.42548561967721949e-16, -2.82762398051658368e-16,
      3.46122286769747715e-17,  4.4656214202967384e-17,   -4.8305044859443707e-18,
      -7.2331804878736517e-18};
  const double a = __builtin_fabs(x);
  double y;
  if (a <= 8) {
    ACI_CHEBYSHEV(near, a * 0.25 - 1, y);
    return y;
  }
  ACI_CHEBYSHEV(far, 16 / a - 1, y);
  return y / __builtin_sqrt(a);
}

ACI_SPECIAL double aci_i1e(double x) {
  static const double near[29] = {
      0.126293593221816827,     -0.176416518357834055,    0.102643658689847095,
      -0.0529459812080949914,   0.0247264490306265168,    -0.0105640848946261982,
      0.00415642294431288816,   -0.00151357245063125315,  0.000512285956168575773,
      -0.000161760815825896746, 0.0000478156510755005423, -0.0000132731636560394358,
      3.47025130813767848e-6,   -8.56872026469545474e-7,  2.00329475355213526e-7,
      -4.44505912879632808e-8,  9.38153738649577178e-9,   -1.88724975172282929e-9,
      3.62559028155211704e-10,  -6.66348972350202774e-11, 1.17361862988909016e-11,
      -1.98397439776494372e-12, 3.22379336594557471e-13,  -5.04218550472791169e-14,
      7.60068429473540693e-15,  -1.10559694773538631e-15, 1.55363195773620047e-16,
      -2.11142121435816608e-17, 2.77791411276104637e-18};
  static const double far[27] = {
      0.38928811750914006,      -0.00976109749136146841,  -0.000110588938762623716,
      -3.88256480887769039e-6,  -2.51223623787020893e-7,  -2.63146884688951951e-8,
      -3.83538038596423702e-9,  -5.58974346219658381e-10, -1.89749581235054123e-11,
      3.25260358301548824e-11,  1.41258074366137813e-11,  2.03562854414708951e-12,
      -7.19855177624590851e-13, -4.08355111109219732e-13, -2.10154184277266431e-14,
      4.27244001671195135e-14,  1.04202769841288028e-14,  -3.8144030724370078e-15,
      -1.88035477551078247e-15, 3.30820231092092865e-16,  2.96262899764595032e-16,
      -3.20952592199344015e-17, -4.65030536848933601e-17, 4.41434832307188878e-18,
      7.51729631084099026e-18,  -9.31417886731400633e-19, -1.24219327519307436e-18};
  const double a = __builtin_fabs(x);
  double y;
  if (a <= 8) {
    ACI_CHEBYSHEV(near, a * 0.25 - 1, y);
    return y * x;
  }
  ACI_CHEBYSHEV(far, 16 / a - 1, y);
  return __builtin_copysign(y / __builtin_sqrt(a), x);
}

/* ---- normal distribution ---- */
/* e^(x^2) erfc(x). The square is taken with its rounding error. From 25 on the asymptotic series. */
ACI_SPECIAL double aci_erfcx(double x) {
  if (x < 25) {
    const double s = x * x, rest = aci_fma64(x, x, -s), e = exp(s);
    return __builtin_isinf(e) ? e : aci_fma64(e, rest, e) * erfc(x);
  }
  const double r = 0.5 / x / x;
  return 0.56418958354775628695 / x * (1 - r * (1 - 3 * r * (1 - 5 * r * (1 - 7 * r))));
}

/* The normal distribution function: erfc(-x / sqrt 2) / 2, where the rounding of x / sqrt 2, which counts times
 * x^2 far out, is made good by the derivative. */
ACI_SPECIAL double aci_ndtr(double x) {
  const double t = -x * 0.70710678118654757;
  const double rest = aci_fma64(-x, 0.70710678118654757, -t) + x * 4.8336466567264851e-17;
  const double y = erfc(t) / 2;
  return __builtin_fabs(t) < 30 ? y - 0.56418958354775629 * exp(-t * t) * rest : y;
}

/* Its logarithm. */
ACI_SPECIAL double aci_log_ndtr(double x) {
  const double t = x * 0.70710678118654752440;
  return x < -1 ? log(aci_erfcx(-t) / 2) - t * t : log1p(-aci_ndtr(-x));
}

/* x with erfc(x) = c, 0 < c <= 1/2: Winitzki's formula, then Newton's steps on the logarithm. */
ACI_SPECIAL double aci_erfcinv(double c) {
  const double l = log(c * (2 - c)), k = 4.3307467508 + l / 2;
  double x = __builtin_sqrt(__builtin_sqrt(k * k - l * 6.8027210884) - k);
  for (int i = 0; i < 4; i++) {
    const double e = aci_erfcx(x); /* d log erfc(x) = -2 / (sqrt pi erfcx(x)) dx */
    x += (log(e) - x * x - log(c)) * e * 0.88622692545275801365;
  }
  return x;
}

ACI_SPECIAL double aci_erfinv(double y) {
  const double a = __builtin_fabs(y);
  if (!(a < 1)) return a == 1 ? y * INFINITY : NAN;
  if (a > 0.5) return __builtin_copysign(aci_erfcinv(1 - a), y);
  const double l = log1p(-a * a), k = 4.3307467508 + l / 2;
  double x = __builtin_sqrt(__builtin_sqrt(k * k - l * 6.8027210884) - k);
  if (a < 1e-3) x = a * (0.88622692545275801365 + a * a * 0.23201366653465449);
  for (int i = 0; i < 2; i++) { /* Halley's steps */
    const double d = (erf(x) - a) * 0.88622692545275801365 * exp(x * x);
    x -= d / (1 + x * d);
  }
  return __builtin_copysign(x, y);
}

/* x whose normal distribution function is p. */
ACI_SPECIAL double aci_ndtri(double p) {
  if (!(p > 0 && p < 1)) return p == 0 ? -INFINITY : p == 1 ? INFINITY : NAN;
  if (p < 0.25) return -1.41421356237309504880 * aci_erfcinv(2 * p);
  if (p > 0.75) return 1.41421356237309504880 * aci_erfcinv(2 - 2 * p);
  return 1.41421356237309504880 * aci_erfinv(2 * p - 1);
}

/* ---- gamma function ---- */
/* From 10 on the asymptotic series, below by psi(x) = psi(x + 1) - 1/x, negative x by reflection. */
ACI_SPECIAL double aci_digamma(double x) {
  double sum = 0, y = x;
  if (x == 0) return __builtin_copysign(INFINITY, -x);
  if (x < 0) {
    const double whole = __builtin_floor(x), part = x - whole;
    if (part == 0) return NAN;
    sum = part == 0.5 ? 0 : -3.14159265358979323846 / tan(3.14159265358979323846 * part);
    y = 1 - x;
  }
  for (; y < 10; y += 1) sum -= 1 / y;
  const double r = 1 / (y * y);
  double s = 0.0833333333333333333;
  s = aci_fma64(s, r, -0.0210927960927960928);
  s = aci_fma64(s, r, 0.00757575757575757576);
  s = aci_fma64(s, r, -0.00416666666666666667);
  s = aci_fma64(s, r, 0.00396825396825396825);
  s = aci_fma64(s, r, -0.00833333333333333333);
  s = aci_fma64(s, r, 0.0833333333333333333);
  return __builtin_isinf(y) ? y : log(y) - 0.5 / y - s * r + sum;
}

/* The sum of (q + k)^-x over k >= 0 (Hurwitz): terms up to 10, the rest by Euler and Maclaurin. */
ACI_SPECIAL double aci_zeta(double x, double q) {
  static const double c[12] = {
      /* B_2k / (2k)! */
      0.0833333333333333333,    -0.00138888888888888889,  0.0000330687830687830688,
      -8.2671957671957672e-7,   2.0876756987868099e-8,    -5.28419013868749318e-10,
      1.33825365306846788e-11,  -3.38968029632258287e-13, 8.58606205627784456e-15,
      -2.17486869855806187e-16, 5.50900282836022952e-18,  -1.39544646858125233e-19};
  if (x != x || q != q) return x + q;
  if (x <= 1) return x == 1 ? INFINITY : NAN;
  if (q <= 0 && q == __builtin_floor(q)) return INFINITY;
  if (q <= 0 && x != __builtin_floor(x)) return NAN; /* powers of negative numbers */
  double sum = 0, w = q, term = 0;
  for (int i = 0; i < 10 || w < 10; i++) {
    term = pow(w, -x);
    sum += term;
    if (i > 0 && w > 0 && __builtin_fabs(term) < 1e-18 * __builtin_fabs(sum)) return sum;
    if (w > 1e8) break;
    w += 1;
  }
  if (w > 1e8) return sum - term + w * pow(w, -x) / (x - 1) + 0.5 * pow(w, -x);
  term = pow(w, -x);
  sum += w * term / (x - 1) + 0.5 * term;
  double rising = x, p = term / w; /* x (x + 1) ... (x + 2k - 2), w^(-x - 2k + 1) */
  for (int k = 0; k < 12; k++) {
    const double d = c[k] * rising * p;
    sum += d;
    if (__builtin_fabs(d) < 1e-18 * __builtin_fabs(sum)) break;
    rising *= (x + 2 * k + 1) * (x + 2 * k + 2);
    p /= w * w;
  }
  return sum;
}

/* Derivative n >= 1 of digamma. */
ACI_SPECIAL double aci_polygamma(double x, double n) {
  const double y = tgamma(n + 1) * aci_zeta(n + 1, x);
  return (long long)n % 2 == 0 ? -y : y;
}

/* x^a e^-x / gamma(a + 1), from 10 on by Stirling's series. */
ACI_SPECIAL double aci_gamma_weight(double a, double x) {
  if (a < 10) return exp(a * log(x) - x - lgamma(a + 1));
  const double m = (x - a) / a, r = 1 / a;
  const double s = r * (1.0 / 12 - r * r * (1.0 / 360 - r * r * (1.0 / 1260 - r * r / 1680)));
  return exp(a * (log1p(m) - m) - s) * 0.39894228040143267794 / __builtin_sqrt(a);
}

/* The regularised incomplete gamma function of a up to x, with upper != 0 from x on: the series below a + 1, Lentz's
 * continued fraction above. */
ACI_SPECIAL double aci_gamma_part(double a, double x, int upper) {
  if (!(a >= 0 && x >= 0)) return NAN;
  if (a == 0) return x > 0 ? (upper ? 0 : 1) : NAN;
  if (x == 0) return upper ? 1 : 0;
  if (__builtin_isinf(a)) return __builtin_isinf(x) ? NAN : upper ? 1 : 0;
  if (__builtin_isinf(x)) return upper ? 0 : 1;
  const double w = aci_gamma_weight(a, x);
  if (x < a + 1) {
    double term = 1, sum = 1;
    for (int k = 1; k < 50000 && term > 1e-17 * sum; k++) {
      term *= x / (a + k);
      sum += term;
    }
    return upper ? 1 - w * sum : w * sum;
  }
  double b = x + 1 - a, c = 1e300, d = 1 / b, f = d;
  for (int k = 1; k < 50000; k++) {
    const double n = k * (a - k);
    b += 2;
    d = 1 / (n * d + b);
    c = b + n / c;
    f *= c * d;
    if (__builtin_fabs(c * d - 1) < 1e-16) break;
  }
  const double y = w * a * f;
  return upper ? y : 1 - y;
}

#endif
