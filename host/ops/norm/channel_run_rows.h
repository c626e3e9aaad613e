/* A template of channel_run.c, which defines T and sfx before each #include. The end of this file
 * undefines them. Tiles are `runs` runs of n elements, `step` apart. Runs of one element side by
 * side are one vector. */
#include "base/cat.h"

/* Mean and squared deviations, by way of deviations from a number that should be near the mean. */
AC_ISA_FN(ACI_CAT(moments_, sfx),
          (const T *restrict x, int64_t runs, int64_t step, int64_t n, T mean,
           double *restrict out),
          (x, runs, step, n, mean, out)) {
  const double count = (double)(runs * n);
  double sum = 0, square = 0;
  for (int64_t r = 0; r < runs; r++) {
    const T *restrict v = x + r * step;
    PAIR_RUN(T, s, q, n, OFF, OFF_SQUARE);
    sum += (double)s;
    square += (double)q;
  }
  out[0] = (double)mean + sum / count;
  out[1] = square - sum * (sum / count);
}
AC_ISA_FN(ACI_CAT(apply_, sfx),
          (const T *x, int64_t xs, T mean, T rest, T rstd, const T *w, const T *b, int64_t ws,
           int64_t runs, int64_t n, T *y, int64_t ys),
          (x, xs, mean, rest, rstd, w, b, ws, runs, n, y, ys)) {
  if (n == 1 && ws == 1 && xs == 1 && ys == 1) {
    _Pragma("GCC ivdep") for (int64_t i = 0; i < runs; i++) y[i] =
        m_fma((x[i] - mean) - rest, rstd * w[i], b[i]);
    return;
  }
  for (int64_t r = 0; r < runs; r++) {
    const T a = rstd * w[r * ws], c = b[r * ws], *v = x + r * xs;
    T *o = y + r * ys;
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) o[i] = m_fma((v[i] - mean) - rest, a, c);
  }
}
AC_ISA_FN(ACI_CAT(dots_, sfx),
          (const T *restrict dy, int64_t gs, const T *restrict x, int64_t xs, T mean, int64_t runs,
           int64_t n, double *restrict out),
          (dy, gs, x, xs, mean, runs, n,
           out)) { /* per run: sums of dy and of dy * (x - mean), added */
  if (n == 1 && gs == 1 && xs == 1) {
    for (int64_t i = 0; i < runs; i++) {
      out[2 * i] += (double)dy[i];
      out[2 * i + 1] += (double)(dy[i] * (x[i] - mean));
    }
    return;
  }
  for (int64_t r = 0; r < runs; r++) {
    const T *restrict g = dy + r * gs, *restrict v = x + r * xs;
    PAIR_RUN(T, s, d, n, GRAD, GRAD_OFF);
    out[2 * r] += (double)s;
    out[2 * r + 1] += (double)d;
  }
}
AC_ISA_FN(ACI_CAT(back_, sfx),
          (const T *dy, int64_t gs, const T *x, int64_t xs, T mean, T rest, T rstd, T q, T c,
           const T *w, int64_t ws, int64_t runs, int64_t n, T *dx, int64_t ds),
          (dy, gs, x, xs, mean, rest, rstd, q, c, w, ws, runs, n, dx, ds)) {
  if (n == 1 && ws == 1 && gs == 1 && xs == 1 && ds == 1) {
    _Pragma("GCC ivdep") for (int64_t i = 0; i < runs; i++) dx[i] =
        m_fma(dy[i], rstd * w[i], -m_fma((x[i] - mean) - rest, q, c));
    return;
  }
  for (int64_t r = 0; r < runs; r++) {
    const T a = rstd * w[r * ws], *g = dy + r * gs, *v = x + r * xs;
    T *o = dx + r * ds;
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) o[i] =
        m_fma(g[i], a, -m_fma((v[i] - mean) - rest, q, c));
  }
}

#undef T
#undef sfx
