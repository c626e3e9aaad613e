/* A template of prod.c, which defines T and sfx before each #include. The end of this file
 * undefines them. The gradient, from the product of the elements that are not 0, and how many are 0
 * and not finite (ACI_PROD_COUNT). */
#include "base/cat.h"

AC_ISA_FN(ACI_CAT(ACI_CAT(parts_, sfx), _rows),
          (aci_word * s, const void *xv, int64_t step, int64_t n_rows, int64_t n, double p),
          (s, xv, step, n_rows, n, p)) {
  (void)p;
  for (int64_t r = 0; r < n_rows; r++) {
    const T *restrict x = (const T *)xv + r * step;
    ACI_LANES_RUN(double, v, n, 1, OTHERS_X, JOIN);
    ACI_LANES_RUN(double, zeros, n, 0, ZEROS_X, ACI_JOIN_ADD);
    s[r].f *= v;
    s[ACI_REDUCTION_TILE + r].f += zeros;
  }
}
AC_ISA_FN(ACI_CAT(ACI_CAT(parts_, sfx), _columns),
          (aci_word * s, const void *const *xv, int64_t m, int64_t n, double p), (s, xv, m, n, p)) {
  (void)p;
  for (int64_t r = 0; r < m; r++) {
    const T *x = xv[r];
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {
      s[i].f = OTHERS_X(s[i].f, i);
      s[ACI_REDUCTION_TILE + i].f = ZEROS_X(s[ACI_REDUCTION_TILE + i].f, i);
    }
  }
}

#undef T
#undef sfx
