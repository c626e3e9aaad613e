/* A template of softmax_kernel.c, which defines T and sfx before each #include. The end of this
 * file undefines them. n_rows <= BATCH / n rows of n, without gaps. */
#include "base/cat.h"

AC_ISA_FN(ACI_CAT(short_, sfx),
          (const T *restrict xs, T *restrict ys, int64_t n_rows, int64_t n, bool logs),
          (xs, ys, n_rows, n, logs)) {
  T e[BATCH], sum[BATCH];
  for (int64_t r = 0; r < n_rows; r++) {
    const T *restrict x = xs + r * n;
    T *restrict y = ys + r * n;
    ACI_LANES_RUN(T, m, n, x[0], MAX_X, JOIN_MAX);
    for (int64_t i = 0; i < n; i++) y[i] = x[i] - m;
  }
  for (int64_t i = 0; i < n_rows * n; i++) e[i] = m_exp(ys[i]);
  for (int64_t r = 0; r < n_rows; r++) {
    const T *restrict x = e + r * n;
    ACI_LANES_RUN(T, s, n, 0, ADD_X, ACI_JOIN_ADD);
    sum[r] = s;
  }
  if (logs)
    for (int64_t r = 0; r < n_rows; r++) sum[r] = m_log(sum[r]);
  else
    for (int64_t r = 0; r < n_rows; r++) sum[r] = 1 / sum[r];
  for (int64_t r = 0; r < n_rows; r++) {
    const T *restrict x = e + r * n;
    T *restrict y = ys + r * n;
    const T s = sum[r];
    if (logs)
      for (int64_t i = 0; i < n; i++) y[i] -= s;
    else
      for (int64_t i = 0; i < n; i++) y[i] = x[i] * s;
  }
}
AC_ISA_FN(ACI_CAT(short_back_, sfx),
          (const T *restrict gs, const T *restrict ys, T *restrict ds, int64_t n_rows, int64_t n,
           bool logs),
          (gs, ys, ds, n_rows, n, logs)) {
  if (logs)
    for (int64_t i = 0; i < n_rows * n; i++) ds[i] = m_exp(ys[i]);
  for (int64_t r = 0; r < n_rows; r++) {
    const T *restrict x = gs + r * n, *restrict y = ys + r * n;
    T *restrict dx = ds + r * n;
    if (logs) {
      ACI_LANES_RUN(T, s, n, 0, ADD_X, ACI_JOIN_ADD);
      for (int64_t i = 0; i < n; i++) dx[i] = x[i] - dx[i] * s;
    } else {
      ACI_LANES_RUN(T, s, n, 0, DOT_XY, ACI_JOIN_ADD);
      for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (x[i] - s);
    }
  }
}

#undef T
#undef sfx
