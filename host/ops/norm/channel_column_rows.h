/* A template of channel_column.c, which defines T and sfx before each #include. The end of this
 * file undefines them. */
#include "base/cat.h"

/* Adds the moments of rows x n elements to per-column moments (count so far: seen). */
AC_ISA_FN(ACI_CAT(moments_, sfx),
          (const T *restrict x, int64_t step, int64_t rows, int64_t n, double seen,
           double *restrict mean, double *restrict m2),
          (x, step, rows, n, seen, mean, m2)) {
  T s[TILE], q[TILE], d[TILE];
  const double count = (double)rows, all = seen + count, share = count / all;
  for (int64_t i = 0; i < n; i++) s[i] = q[i] = d[i] = 0;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < n; i++) s[i] += x[r * step + i];
  for (int64_t i = 0; i < n; i++) s[i] = (T)((double)s[i] / count);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < n; i++) {
      T v = x[r * step + i] - s[i];
      q[i] = m_fma(v, v, q[i]);
      d[i] += v;
    }
  for (int64_t i = 0; i < n; i++) {
    double rest = (double)d[i] / count, off = (double)s[i] + rest - mean[i];
    mean[i] += off * share;
    m2[i] += (double)q[i] - rest * (double)d[i] + off * off * (seen * share);
  }
}
AC_ISA_FN(ACI_CAT(dots_, sfx),
          (const T *restrict dy, int64_t gs, const T *restrict x, int64_t xs,
           const T *restrict mean, int64_t rows, int64_t n, double *restrict sum,
           double *restrict dot),
          (dy, gs, x, xs, mean, rows, n, sum, dot)) {
  T s[TILE], d[TILE];
  for (int64_t i = 0; i < n; i++) s[i] = d[i] = 0;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < n; i++) {
      s[i] += dy[r * gs + i];
      d[i] = m_fma(dy[r * gs + i], x[r * xs + i] - mean[i], d[i]);
    }
  for (int64_t i = 0; i < n; i++) {
    sum[i] += (double)s[i];
    dot[i] += (double)d[i];
  }
}
AC_ISA_FN(ACI_CAT(apply_, sfx),
          (const T *x, const T *mean, const T *rest, const T *a, const T *b, int64_t n, T *y),
          (x, mean, rest, a, b, n, y)) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] =
      m_fma((x[i] - mean[i]) - rest[i], a[i], b[i]);
}
AC_ISA_FN(ACI_CAT(back_, sfx),
          (const T *dy, const T *x, const T *mean, const T *rest, const T *a, const T *q,
           const T *c, int64_t n, T *dx),
          (dy, x, mean, rest, a, q, c, n, dx)) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) dx[i] =
      m_fma(dy[i], a[i], -m_fma((x[i] - mean[i]) - rest[i], q[i], c[i]));
}
AC_ISA_FN(ACI_CAT(scale_, sfx), (const T *dy, const T *a, int64_t n, T *dx), (dy, a, n, dx)) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * a[i];
}

#undef T
#undef sfx
