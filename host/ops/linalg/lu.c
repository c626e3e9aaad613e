/* LU factors (lu.h): panels of columns from left to right, everything after a panel by matrix
 * products (LAPACK's getrf, Golub and Van Loan 3.4). */
#include "ops/linalg/lu.h"

#include <math.h>

#include "device/cpu/isa.h"

enum { NB = 32 };

AC_ISA_FN(subtract, (double *restrict y, const double *restrict x, double by, int64_t n),
          (y, x, by, n)) {
  for (int64_t i = 0; i < n; i++) y[i] -= by * x[i];
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static void exchange(double *a, int64_t ld, int64_t columns, int64_t i, int64_t j) {
  if (i == j) return;
  for (int64_t c = 0; c < columns; c++) {
    const double t = a[c * ld + i];
    a[c * ld + i] = a[c * ld + j];
    a[c * ld + j] = t;
  }
}

/* Columns j0.. of a, nb of them, whose rows above j0 are done. */
static void panel(int64_t m, double *a, int64_t j0, int64_t nb, bool pivot, int64_t *pivots,
                  int64_t *info) {
  for (int64_t j = j0; j < j0 + nb; j++) {
    double *x = a + j * m;
    int64_t p = j;
    for (int64_t i = j + 1; i < m && pivot; i++)
      if (fabs(x[i]) > fabs(x[p])) p = i;
    pivots[j] = p;
    exchange(a + j0 * m, m, nb, j, p);
    if (x[j] == 0) {
      if (*info == 0) *info = j + 1;
      continue; /* the column below is zero, too, unless nothing may be exchanged */
    }
    for (int64_t i = j + 1; i < m; i++) x[i] /= x[j];
    for (int64_t c = j + 1; c < j0 + nb; c++)
      subtract(a + c * m + j + 1, x + j + 1, a[c * m + j], m - j - 1);
  }
}

ac_status aci_lu(ac_team *team, int64_t m, int64_t n, double *a, bool pivot, int64_t *pivots,
                 int64_t *info, ac_err *e) {
  const int64_t k = least(m, n);
  *info = 0;
  for (int64_t j0 = 0; j0 < k; j0 += NB) {
    const int64_t nb = least(NB, k - j0), next = j0 + nb;
    panel(m, a, j0, nb, pivot, pivots, info);
    for (int64_t j = j0; j < next; j++) {
      exchange(a, m, j0, j, pivots[j]);
      exchange(a + next * m, m, n - next, j, pivots[j]);
    }
    for (int64_t c = next; c < n; c++) /* U on the right of the panel */
      for (int64_t j = j0; j < next; j++)
        subtract(a + c * m + j + 1, a + j * m + j + 1, a[c * m + j], next - j - 1);
    AC_TRY(aci_matrix_subtract(team, n - next, m - next, nb, a + next * m + j0, m,
                               a + j0 * m + next, m, 1, a + next * m + next, m, e));
  }
  return AC_OK;
}

ac_status aci_lu_solve(ac_team *team, int64_t n, const double *a, const int64_t *pivots, int64_t k,
                       double *x, ac_err *e) {
  for (int64_t j = 0; j < n; j++) exchange(x, n, k, j, pivots[j]);
  for (int64_t j0 = 0; j0 < n; j0 += NB) {
    const int64_t nb = least(NB, n - j0), next = j0 + nb;
    for (int64_t c = 0; c < k; c++)
      for (int64_t j = j0; j < next; j++)
        subtract(x + c * n + j + 1, a + j * n + j + 1, x[c * n + j], next - j - 1);
    AC_TRY(aci_matrix_subtract(team, k, n - next, nb, x + j0, n, a + j0 * n + next, n, 1, x + next,
                               n, e));
  }
  for (int64_t j0 = (n - 1) / NB * NB; j0 >= 0; j0 -= NB) {
    const int64_t nb = least(NB, n - j0);
    for (int64_t c = 0; c < k; c++)
      for (int64_t j = j0 + nb - 1; j >= j0; j--) {
        x[c * n + j] /= a[j * n + j];
        subtract(x + c * n + j0, a + j * n + j0, x[c * n + j], j - j0);
      }
    AC_TRY(aci_matrix_subtract(team, k, j0, nb, x + j0, n, a + j0 * n, n, 1, x, n, e));
  }
  return AC_OK;
}
