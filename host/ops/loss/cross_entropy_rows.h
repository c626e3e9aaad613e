/* A template of cross_entropy_kernel.c, which defines T and sfx before each #include. The end of
 * this file undefines them. */
#include "base/cat.h"

static inline double ACI_CAT(r_, sfx)(const cross_entropy_job *j, const T *q, int64_t y, int64_t c,
                                      int64_t n) {
  double v = (1 - j->smooth) * (q != NULL ? (double)q[c]
                                : c == y  ? 1.0
                                          : 0.0) +
             j->smooth / (double)n;
  return j->y.w != NULL ? v * (double)((const T *)j->y.w)[c] : v;
}
static double ACI_CAT(row_, sfx)(const cross_entropy_job *j, const T *x, const T *q, int64_t y,
                                 T *buf) {
  const int64_t n = j->x.n_reduced;
  const T m = ACI_CAT(aci_row_max_, sfx)(x, n);
  const double ln = log(ACI_CAT(aci_row_exp_, sfx)(x, m, n, buf));
  double l = 0;
  if (q == NULL && j->smooth == 0)
    return ACI_CAT(r_, sfx)(j, q, y, y, n) * ((double)(m - x[y]) + ln);
  for (int64_t c = 0; c < n; c++)
    l += ACI_CAT(r_, sfx)(j, q, y, c, n) * ((double)m - (double)x[c] + ln);
  return l;
}
static void ACI_CAT(row_back_, sfx)(const cross_entropy_job *j, const T *x, const T *q, int64_t y,
                                    double g, T *dx) {
  const int64_t n = j->x.n_reduced;
  double sum = ACI_CAT(aci_row_exp_, sfx)(x, ACI_CAT(aci_row_max_, sfx)(x, n), n, dx), r = 0,
         each = g * j->smooth / (double)n;
  const double wy = j->y.w == NULL || q != NULL ? 1 : (double)((const T *)j->y.w)[y];
  if (q == NULL) {
    r = (1 - j->smooth) * wy + j->smooth / (double)n * j->y.sum_w;
    if (j->y.w != NULL && each != 0) ACI_CAT(axpby_, sfx)(dx, (T)(g * r / sum), (T)each, j->y.w, n);
    else ACI_CAT(scale_, sfx)(dx, (T)(g * r / sum), (T)each, n);
    dx[y] -= (T)(g * (1 - j->smooth) * wy);
    return;
  }
  for (int64_t c = 0; c < n; c++) r += ACI_CAT(r_, sfx)(j, q, y, c, n);
  for (int64_t c = 0; c < n; c++)
    dx[c] = (T)(g * (r / sum * (double)dx[c] - ACI_CAT(r_, sfx)(j, q, y, c, n)));
}

#undef T
#undef sfx
