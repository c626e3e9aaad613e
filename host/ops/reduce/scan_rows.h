/* A template of scan.c, which defines name, T, W, A, JOIN and START before each #include. The end
 * of this file undefines them. name_step: a row of running
 * values. name_line: n elements from *at on. name_four: as many lines at once. name_total: n
 * elements. */
#include "base/cat.h"

AC_ISA_FN(ACI_CAT(name, _step), (word *restrict s, const T *x, T *y, int64_t n), (s, x, y, n)) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {
    s[i].W = JOIN(s[i].W, (A)x[i]);
    y[i] = (T)s[i].W;
  }
}
static void ACI_CAT(name, _row)(word *s, const void *x, void *y, int64_t n) {
  ACI_CAT(name, _step)(s, x, y, n);
}
static void ACI_CAT(name, _line)(word *at, const void *xv, void *yv, int64_t n) {
  const T *x = xv;
  T *y = yv;
  A v = at->W;
  for (int64_t i = 0; i < n; i++) {
    v = JOIN(v, (A)x[i]);
    y[i] = (T)v;
  }
  at->W = v;
}
static void ACI_CAT(name, _four)(word *at, const void *const *xv, void *const *yv, int64_t n) {
  const T *x0 = xv[0], *x1 = xv[1], *x2 = xv[2], *x3 = xv[3];
  T *y0 = yv[0], *y1 = yv[1], *y2 = yv[2], *y3 = yv[3];
  A a = at[0].W, b = at[1].W, c = at[2].W, d = at[3].W;
  for (int64_t i = 0; i < n; i++) {
    a = JOIN(a, (A)x0[i]);
    b = JOIN(b, (A)x1[i]);
    c = JOIN(c, (A)x2[i]);
    d = JOIN(d, (A)x3[i]);
    y0[i] = (T)a;
    y1[i] = (T)b;
    y2[i] = (T)c;
    y3[i] = (T)d;
  }
  at[0].W = a, at[1].W = b, at[2].W = c, at[3].W = d;
}
static void ACI_CAT(name, _total)(word *at, const void *xv, int64_t n) {
  const T *x = xv;
  A v[8];
  int64_t i = 0;
  for (int k = 0; k < 8; k++) v[k] = START;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; k++) v[k] = JOIN(v[k], (A)x[i + k]);
  for (; i < n; i++) v[0] = JOIN(v[0], (A)x[i]);
  v[0] = JOIN(JOIN(JOIN(v[0], v[1]), JOIN(v[2], v[3])), JOIN(JOIN(v[4], v[5]), JOIN(v[6], v[7])));
  at->W = JOIN(at->W, v[0]);
}
static void ACI_CAT(name, _join)(word *at, const word *b) { at->W = JOIN(at->W, b->W); }

#undef name
#undef T
#undef W
#undef A
#undef JOIN
#undef START
