/* A template of logsumexp.c, which defines T and sfx before each #include. The end of this file
 * undefines them. */
#include "base/cat.h"

AC_ISA_FN(ACI_CAT(ACI_CAT(lse_, sfx), _rows),
          (aci_word * s, const void *xv, int64_t step, int64_t n_rows, int64_t n, double p),
          (s, xv, step, n_rows, n, p)) {
  (void)p;
  for (int64_t r = 0; r < n_rows; r++) {
    const T *restrict x = (const T *)xv + r * step;
    ACI_LANES_RUN(T, top, n, x[0], MAX_X, JOIN_MAX);
    const T shift = m_abs(top) < (T)INFINITY ? top : 0;
    ACI_LANES_RUN(T, sum, n, 0, EXP_X, ACI_JOIN_ADD);
    join_one(&s[r], &s[ACI_REDUCTION_TILE + r], (double)shift, (double)sum);
  }
}
AC_ISA_FN(ACI_CAT(ACI_CAT(lse_, sfx), _top), (T *restrict top, const T *x, int64_t n),
          (top, x, n)) {
  for (int64_t i = 0; i < n; i++) top[i] = x[i] > top[i] ? x[i] : top[i];
}
AC_ISA_FN(ACI_CAT(ACI_CAT(lse_, sfx), _add),
          (T *restrict sum, const T *restrict shift, const T *x, int64_t n), (sum, shift, x, n)) {
  for (int64_t i = 0; i < n; i++) sum[i] += m_exp(x[i] - shift[i]);
}
AC_ISA_FN(ACI_CAT(ACI_CAT(lse_, sfx), _meet),
          (aci_word *restrict s, const T *restrict shift, const T *restrict sum, int64_t n),
          (s, shift, sum, n)) { /* as join_one. e^0 is 1 exactly */
  aci_word *of = s + ACI_REDUCTION_TILE;
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {
    const T a = (T)s[i].f, b = shift[i], top = a > b ? a : b;
    const T wa = of[i].f == INFINITY ? 1 : m_exp(a - top),
            wb = sum[i] == (T)INFINITY ? 1 : m_exp(b - top);
    of[i].f = of[i].f * (double)wa + (double)sum[i] * (double)wb;
    s[i].f = (double)top;
  }
}
static void ACI_CAT(ACI_CAT(lse_, sfx), _columns)(aci_word *s, const void *const *xv, int64_t m,
                                                  int64_t n, double p) {
  T shift[ACI_REDUCTION_TILE], sum[ACI_REDUCTION_TILE];
  (void)p;
  memcpy(shift, xv[0], (size_t)n * sizeof *shift);
  for (int64_t r = 1; r < m; r++) ACI_CAT(ACI_CAT(lse_, sfx), _top)(shift, xv[r], n);
  for (int64_t i = 0; i < n; i++) {
    shift[i] = m_abs(shift[i]) < (T)INFINITY ? shift[i] : 0;
    sum[i] = 0;
  }
  for (int64_t r = 0; r < m; r++) ACI_CAT(ACI_CAT(lse_, sfx), _add)(sum, shift, xv[r], n);
  ACI_CAT(ACI_CAT(lse_, sfx), _meet)(s, shift, sum, n);
}

#undef T
#undef sfx
