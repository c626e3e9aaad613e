/* A template of norm_kernel.c, which defines T and sfx before each #include. The end of this file
 * undefines them. */
#include "base/cat.h"

AC_ISA_FN(ACI_CAT(square_, sfx), (const T *restrict x, T mean, int64_t n, T *restrict out),
          (x, mean, n, out)) {
  /* sums of (x - mean)^2 and of x - mean */
  ACI_LANES_SUM2(T, s, d, n, SQUARE_X, SUM_X);
  out[0] = s;
  out[1] = d;
}
AC_ISA_FN(ACI_CAT(apply_, sfx),
          (const T *x, ACI_CAT(stat_, sfx) t, const T *w, const T *b, int64_t n, T *y),
          (x, t, w, b, n, y)) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] =
      m_fma(((x[i] - t.mean) - t.rest) * t.rstd, w[i], b[i]);
}
AC_ISA_FN(ACI_CAT(dots_, sfx),
          (const T *restrict dy, const T *restrict w, const T *restrict x, T mean, int64_t n,
           T *restrict out),
          (dy, w, x, mean, n, out)) { /* sums of g and of g * (x - mean) */
  ACI_LANES_SUM2(T, s, d, n, SUM_G, SUM_GX);
  out[0] = s;
  out[1] = d;
}
AC_ISA_FN(ACI_CAT(back_, sfx),
          (const T *dy, const T *w, const T *x, ACI_CAT(stat_, sfx) t, T c1, T c2, int64_t n, T *dx,
           T *dw, T *db),
          (dy, w, x, t, c1, c2, n, dx, dw, db)) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {
    T h = ((x[i] - t.mean) - t.rest) * t.rstd;
    dw[i] = m_fma(dy[i], h, dw[i]);
    db[i] += dy[i];
    dx[i] = t.rstd * (m_fma(dy[i], w[i], -c1) - h * c2);
  }
}
AC_ISA_FN(ACI_CAT(add_, sfx), (const T *a, const T *b, int64_t n, T *y),
          (a, b, n, y)) { /* y may be a or b */
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}
static ACI_CAT(stat_, sfx) ACI_CAT(stats_, sfx)(const T *x, int64_t n, bool rms, double eps) {
  ACI_CAT(stat_, sfx) t = {0, 0, 0};
  double square = 0, rest = 0;
  if (!rms) t.mean = (T)(ACI_CAT(aci_sum_, sfx)(x, n) / (double)n);
  for (int64_t i = 0; i < n; i += ACI_RED_BLOCK) {
    T s[2];
    ACI_CAT(square_, sfx)(x + i, t.mean, n - i < ACI_RED_BLOCK ? n - i : ACI_RED_BLOCK, s);
    square += (double)s[0];
    rest += (double)s[1];
  }
  rest = rms ? 0 : rest / (double)n;
  t.rest = (T)rest;
  t.rstd = (T)(1 / sqrt(square / (double)n - rest * rest + eps));
  return t;
}
static void ACI_CAT(row_, sfx)(const void *x, const void *w, const void *b, int64_t n, bool rms,
                               double eps, void *y) {
  ACI_CAT(apply_, sfx)(x, ACI_CAT(stats_, sfx)(x, n, rms, eps), w, b, n, y);
}
static void ACI_CAT(row_back_, sfx)(const void *dy, const void *w, const T *x, int64_t n, bool rms,
                                    double eps, void *dx, void *dw, void *db) {
  const ACI_CAT(stat_, sfx) t = ACI_CAT(stats_, sfx)(x, n, rms, eps);
  T s[2];
  double c1 = 0, c2 = 0;
  for (int64_t i = 0; i < n; i += ACI_RED_BLOCK) {
    ACI_CAT(dots_, sfx)
    ((const T *)dy + i, (const T *)w + i, x + i, t.mean,
     n - i < ACI_RED_BLOCK ? n - i : ACI_RED_BLOCK, s);
    c1 += (double)s[0];
    c2 += (double)s[1];
  }
  c2 = (c2 - c1 * (double)t.rest) * (double)t.rstd / (double)n;
  c1 = rms ? 0 : c1 / (double)n;
  ACI_CAT(back_, sfx)(dy, w, x, t, (T)c1, (T)c2, n, dx, dw, db);
}

#undef T
#undef sfx
