/* A template of minmax_short.c, which defines name, T, TAKE and WAY before each #include. The end
 * of this file undefines them. */
#include "base/cat.h"

AC_ISA_FN(ACI_CAT(name, _rows),
          (aci_word * s, const void *xv, int64_t step, int64_t n_rows, int64_t n, double p),
          (s, xv, step, n_rows, n, p)) {
  (void)p;
  for (int64_t r = 0; r < n_rows; r++) {
    const T *restrict x = (const T *)xv + r * step;
    ACI_LANES_RUN(T, best, n, x[0], ACI_CAT(WAY, _X), WAY);
    ACI_LANES_RUN(T, nans, n, 0, NANS_X, ACI_JOIN_ADD);
    s[r].f = TAKE(s[r].f, nans > 0 ? (T)NAN : best);
  }
}
AC_ISA_FN(ACI_CAT(name, _columns),
          (aci_word * s, const void *const *xv, int64_t m, int64_t n, double p), (s, xv, m, n, p)) {
  (void)p;
  for (int64_t r = 0; r < m; r++) {
    const T *x = xv[r];
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) s[i].f = TAKE(s[i].f, x[i]);
  }
}
static void ACI_CAT(name, _join)(aci_word *s, const aci_word *t, int64_t n, double p) {
  (void)p;
  for (int64_t i = 0; i < n; i++) s[i].f = TAKE(s[i].f, t[i].f);
}

#undef name
#undef T
#undef TAKE
#undef WAY
