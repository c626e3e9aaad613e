/* A template of softmax_kernel.c, which defines T and sfx before each #include. The end of this
 * file undefines them. */
#include "base/cat.h"

AC_ISA_FN(ACI_CAT(max_, sfx), (const T *restrict x, int64_t n, T *restrict out), (x, n, out)) {
  ACI_LANES_RUN(T, m, n, x[0], MAX_X, JOIN_MAX);
  *out = m;
}
AC_ISA_FN(ACI_CAT(exp_, sfx), (const T *x, T m, int64_t n, T *y), (x, m, n, y)) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = m_exp(x[i] - m);
}
AC_ISA_FN(ACI_CAT(scale_, sfx), (const T *x, T a, T b, int64_t n, T *y), (x, a, b, n, y)) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = (x[i] - a) * b;
}
AC_ISA_FN(ACI_CAT(shift_, sfx), (const T *x, T a, T b, int64_t n, T *y), (x, a, b, n, y)) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = (x[i] - a) - b;
}
AC_ISA_FN(ACI_CAT(dot_, sfx),
          (const T *restrict x, const T *restrict y, int64_t n, T *restrict out), (x, y, n, out)) {
  ACI_LANES_RUN(T, s, n, 0, DOT_XY, ACI_JOIN_ADD);
  *out = s;
}
AC_ISA_FN(ACI_CAT(back_, sfx), (const T *dy, const T *y, T s, int64_t n, T *dx),
          (dy, y, s, n, dx)) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - s);
}
AC_ISA_FN(ACI_CAT(log_back_, sfx), (const T *dy, const T *y, T s, int64_t n, T *dx),
          (dy, y, s, n, dx)) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) dx[i] = dy[i] - m_exp(y[i]) * s;
}
T ACI_CAT(aci_row_max_, sfx)(const T *x, int64_t n) {
  T m;
  ACI_CAT(max_, sfx)(x, n, &m);
  return m;
}
double ACI_CAT(aci_row_exp_, sfx)(const T *x, T m, int64_t n, T *y) {
  ACI_CAT(exp_, sfx)(x, m, n, y);
  return ACI_CAT(aci_sum_, sfx)(y, n);
}
static double ACI_CAT(row_dot_, sfx)(const T *x, const T *y, int64_t n) {
  double s = 0;
  for (int64_t i = 0; i < n; i += ACI_RED_BLOCK) {
    T v;
    ACI_CAT(dot_, sfx)(x + i, y + i, n - i < ACI_RED_BLOCK ? n - i : ACI_RED_BLOCK, &v);
    s += (double)v;
  }
  return s;
}
static void ACI_CAT(row_, sfx)(const T *x, T *y, int64_t n, bool logs) {
  T m = ACI_CAT(aci_row_max_, sfx)(x, n);
  double s = ACI_CAT(aci_row_exp_, sfx)(x, m, n, y);
  if (logs) ACI_CAT(shift_, sfx)(x, m, (T)m_log(s), n, y);
  else ACI_CAT(scale_, sfx)(y, 0, (T)(1 / s), n, y);
}
static void ACI_CAT(row_backward_, sfx)(const T *dy, const T *y, T *dx, int64_t n, bool logs) {
  if (logs) ACI_CAT(log_back_, sfx)(dy, y, (T)ACI_CAT(aci_sum_, sfx)(dy, n), n, dx);
  else ACI_CAT(back_, sfx)(dy, y, (T)ACI_CAT(row_dot_, sfx)(dy, y, n), n, dx);
}

#undef T
#undef sfx
