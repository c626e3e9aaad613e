/* A template of moments.c, which defines T and sfx before each #include. The end of this file
 * undefines them. */
#include "base/cat.h"

AC_ISA_FN(ACI_CAT(ACI_CAT(moments_, sfx), _rows),
          (aci_word * s, const void *xv, int64_t step, int64_t n_rows, int64_t n, double p),
          (s, xv, step, n_rows, n, p)) {
  (void)p;
  for (int64_t r = 0; r < n_rows; r++) {
    const T *restrict x = (const T *)xv + r * step;
    ACI_LANES_RUN(double, sum, n, 0, SUM_X, ACI_JOIN_ADD);
    const double mean = sum / (double)n;
    ACI_LANES_RUN(double, m2, n, 0, DISTANCE_X, ACI_JOIN_ADD);
    join_one(s + r, (double)n, mean, m2);
  }
}
AC_ISA_FN(ACI_CAT(ACI_CAT(moments_, sfx), _columns),
          (aci_word * s, const void *const *xv, int64_t m, int64_t n, double p), (s, xv, m, n, p)) {
  double mean[ACI_REDUCTION_TILE], m2[ACI_REDUCTION_TILE];
  const double one = 1 / (double)m, have = s[0].f, share = (double)m / (have + (double)m);
  (void)p;
  int64_t r = 0;
  for (int64_t i = 0; i < n; i++) mean[i] = m2[i] = 0;
  for (; r + 4 <= m; r += 4) {
    const T *x = xv[r], *y = xv[r + 1], *z = xv[r + 2], *w = xv[r + 3];
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) mean[i] +=
        ((double)x[i] + (double)y[i]) + ((double)z[i] + (double)w[i]);
  }
  for (; r < m; r++) {
    const T *x = xv[r];
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) mean[i] += (double)x[i];
  }
  for (int64_t i = 0; i < n; i++) mean[i] *= one;
  for (r = 0; r + 4 <= m; r += 4) {
    const T *x = xv[r], *y = xv[r + 1], *z = xv[r + 2], *w = xv[r + 3];
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {
      const double c = mean[i], d = (double)x[i] - c, e = (double)y[i] - c, f = (double)z[i] - c;
      const double g = (double)w[i] - c;
      m2[i] = m_fma(d, d, m_fma(e, e, m_fma(f, f, m_fma(g, g, m2[i]))));
    }
  }
  for (; r < m; r++) {
    const T *x = xv[r];
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) m2[i] =
        m_fma((double)x[i] - mean[i], (double)x[i] - mean[i], m2[i]);
  }
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) { /* join_one, with the same count for all */
    const double way = mean[i] - s[ACI_REDUCTION_TILE + i].f;
    s[i].f = have + (double)m;
    s[ACI_REDUCTION_TILE + i].f += way * share;
    s[2 * ACI_REDUCTION_TILE + i].f += m2[i] + way * way * have * share;
  }
}

#undef T
#undef sfx
