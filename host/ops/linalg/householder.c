/* Householder QR (householder.h). Reflection i is I - tau v v^T with v[i] = 1 and zeros above. NB
 * of them together are I - V T V^T with T upper triangular (Schreiber and Van Loan), so that
 * everything outside a panel of columns is matrix products. */
#include "ops/linalg/householder.h"

#include <math.h>
#include <string.h>

#include "device/cpu/gemm.h"
#include "device/cpu/isa.h"

enum { NB = 32 };

AC_ISA_FN(dot, (const double *x, const double *y, int64_t n, double *out), (x, y, n, out)) {
  double s[8] = {0};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; k++) s[k] += x[i + k] * y[i + k];
  for (; i < n; i++) s[0] += x[i] * y[i];
  *out = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}
AC_ISA_FN(add, (double *restrict y, const double *restrict x, double by, int64_t n),
          (y, x, by, n)) {
  for (int64_t i = 0; i < n; i++) y[i] += by * x[i];
}
AC_ISA_FN(divide, (double *y, double by, int64_t n), (y, by, n)) {
  for (int64_t i = 0; i < n; i++) y[i] /= by;
}

static double length(const double *x, int64_t n) {
  double s, most = 0;
  dot(x, x, n, &s);
  if (s > 1e-280 && s < 1e280) return sqrt(s);
  for (int64_t i = 0; i < n; i++) most = fabs(x[i]) > most || x[i] != x[i] ? fabs(x[i]) : most;
  if (most == 0 || most * 0 != 0) return most;
  s = 0;
  for (int64_t i = 0; i < n; i++) s += x[i] / most * (x[i] / most);
  return most * sqrt(s);
}

/* The reflection that leaves only the first of x's n values: x becomes that value, then v[1..].
   Returns tau. 0 when there is nothing to do, as in LAPACK: so the last column of a square matrix
   keeps its sign. */
static double reflection(double *x, int64_t n) {
  double rest = n > 1 ? length(x + 1, n - 1) : 0, alpha = x[0];
  if (rest == 0) return 0;
  double beta = -copysign(hypot(alpha, rest), alpha);
  divide(x + 1, alpha - beta, n - 1); /* the inverse of a denormal would be infinite */
  x[0] = beta;
  return (beta - alpha) / beta;
}

typedef struct work {
  ac_team *team;
  int64_t m, n;
  double *a, *tau, *t; /* t: per panel NB x NB */
  double *v, *p, *q;   /* V by columns. Two products of up to max(n, kq) x NB */
} work;

static int64_t panels(int64_t k) { return (k + NB - 1) / NB; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

int64_t aci_householder_scratch(int64_t m, int64_t n, int64_t kq) {
  int64_t k = least(m, n);
  return k + panels(k) * NB * NB + NB * m + 2 * most(n, kq) * NB;
}

static void factor_panel(const work *w, int64_t j0, int64_t nb) {
  for (int64_t j = j0; j < j0 + nb; j++) {
    double *v = w->a + j * w->m + j;
    const int64_t n = w->m - j;
    const double tau = w->tau[j] = reflection(v, n);
    for (int64_t c = j + 1; c < j0 + nb && tau != 0; c++) {
      double *x = w->a + c * w->m + j, s;
      dot(v + 1, x + 1, n - 1, &s);
      s = (s + x[0]) * tau;
      x[0] -= s;
      add(x + 1, v + 1, -s, n - 1);
    }
  }
}

/* Writes out V of the panel at j0 (nb columns of m - j0), and T if it is unknown so far. */
static void spread_panel(const work *w, int64_t j0, int64_t nb, bool want_t) {
  const int64_t n = w->m - j0;
  double *t = w->t + j0 / NB * NB * NB;
  for (int64_t i = 0; i < nb; i++) {
    double *v = w->v + i * n;
    memset(v, 0, (size_t)i * sizeof *v);
    v[i] = 1;
    if (n - i > 1)
      memcpy(v + i + 1, w->a + (j0 + i) * w->m + j0 + i + 1, (size_t)(n - i - 1) * sizeof *v);
  }
  for (int64_t i = 0; i < nb && want_t; i++) { /* T[0..i, i] = -tau T V^T v */
    double tau = w->tau[j0 + i], s[NB];
    for (int64_t r = 0; r < NB; r++) t[r * NB + i] = 0;
    for (int64_t r = 0; r < i; r++) dot(w->v + r * n + i, w->v + i * n + i, n - i, &s[r]);
    for (int64_t r = 0; r < i; r++)
      for (int64_t c = r; c < i; c++) t[r * NB + i] -= tau * t[r * NB + c] * s[c];
    t[i * NB + i] = tau;
  }
}

/* c (rows x cols, row stride ldc) := alpha * a b + beta * c */
static ac_status product(const work *w, int64_t rows, int64_t cols, int64_t k, const double *a,
                         int64_t a_rs, const double *b, int64_t b_rs, int64_t b_cs, double alpha,
                         double beta, double *c, int64_t ldc, ac_err *e) {
  const void *pa = a, *pb = b;
  void *pc = c;
  aci_gemm g = {.in_type = ACI_GEMM_F64,
                .out_type = ACI_GEMM_F64,
                .m = rows,
                .n = cols,
                .k = k,
                .a_rs = a_rs,
                .a_cs = 1,
                .b_rs = b_rs,
                .b_cs = b_cs,
                .c_rs = ldc,
                .n_batch = 1,
                .a = &pa,
                .b = &pb,
                .c = &pc,
                .alpha = alpha,
                .beta = beta};
  return aci_cpu_gemm(w->team, &g, e);
}

/* Columns x (n_x of them, in an array whose rows are w->m long, from row j0 of the matrix on) := H
   x, or H^T x: x^T := x^T - (x^T V) T' V^T with T' = T^T for H, T for H^T. */
static ac_status apply_panel(const work *w, int64_t j0, int64_t nb, bool transposed, double *x,
                             int64_t n_x, ac_err *e) {
  const int64_t n = w->m - j0;
  const double *t = w->t + j0 / NB * NB * NB;
  if (n_x == 0) return AC_OK;
  AC_TRY(product(w, n_x, nb, n, x, w->m, w->v, 1, n, 1, 0, w->p, NB, e));
  AC_TRY(product(w, n_x, nb, nb, w->p, NB, t, transposed ? NB : 1, transposed ? 1 : NB, 1, 0, w->q,
                 NB, e));
  return product(w, n_x, n, nb, w->q, NB, w->v, n, 1, -1, 1, x, w->m, e);
}

ac_status aci_householder_qr(ac_team *team, int64_t m, int64_t n, double *a, int64_t kq, double *q,
                             double *scratch, ac_err *e) {
  const int64_t k = least(m, n);
  work w = {.team = team, .m = m, .n = n, .a = a, .tau = scratch};
  w.t = w.tau + k;
  w.v = w.t + panels(k) * NB * NB;
  w.p = w.v + NB * m;
  w.q = w.p + most(n, kq) * NB;
  for (int64_t j0 = 0; j0 < k; j0 += NB) {
    const int64_t nb = least(NB, k - j0), behind = j0 + nb;
    factor_panel(&w, j0, nb);
    spread_panel(&w, j0, nb, true);
    AC_TRY(apply_panel(&w, j0, nb, true, a + behind * m + j0, n - behind, e));
  }
  for (int64_t i = 0; i < kq; i++) {
    memset(q + i * m, 0, (size_t)m * sizeof *q);
    q[i * m + i] = 1;
  }
  for (int64_t j0 = (panels(k) - 1) * NB; j0 >= 0 && kq > 0;
       j0 -= NB) { /* columns before j0 still equal those of I */
    const int64_t nb = least(NB, k - j0);
    spread_panel(&w, j0, nb, false);
    AC_TRY(apply_panel(&w, j0, nb, false, q + j0 * m + j0, kq - j0, e));
  }
  return AC_OK;
}
