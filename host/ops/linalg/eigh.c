/* eigh: A = V diag(w) V^T for symmetric A: eigenvalues w ascending, eigenvectors in the columns of V. Only the lower
   triangle is read, or the upper one with UPLO = "U". By LAPACK's dsyevd from 17 rows on if the system has it, otherwise
   by Jacobi rotations (Golub and Van Loan 8.5). Signs of vectors are free, as are the vectors of equal eigenvalues.
   A (..., n, n) -> eigenvalues (..., n), eigenvectors (..., n, n). Dtypes: floats, computed in f64. NaN and infinity
   give NaN.
   gradient: dA = V (diag(dw) + (V^T dV) / E) V^T with E_ij = w_j - w_i (zero quotients on the diagonal), infinite for
   equal eigenvalues if dV is given (Giles, An extended collection of matrix derivative results, 2008, 3.1).
   example: local w = accel.tensor({ { 2.0, 1.0 }, { 1.0, 2.0 } }):eigh() return w --> { 1, 3 } */
#include <math.h>

#include "ops/core/on_host.h"
#include "ops/linalg/lapack.h"
#include "ops/linalg/matrix.h"

enum { A, UPLO, SWEEPS = 60 };

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, A);
  AC_TRY(aci_matrix_check(x, true, e));
  AC_TRY(ac_frame_out(f, (ac_dtype)x->dtype, x->ndim - 1, x->shape, e));
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}

static void turn(double *x, double *y, double c, double s, int64_t n, int64_t step) {
  for (int64_t i = 0; i < n * step; i += step) {
    const double p = x[i], q = y[i];
    x[i] = c * p - s * q;
    y[i] = s * p + c * q;
  }
}

/* Sweeps over all pairs until the elements beside the diagonal are below rounding. */
static void jacobi(int64_t n, double *a, double *v) {
  memset(v, 0, (size_t)(n * n) * sizeof *v);
  for (int64_t i = 0; i < n; i++) v[i * n + i] = 1;
  for (int k = 0; k < SWEEPS; k++) {
    bool turned = false;
    for (int64_t p = 0; p < n - 1; p++)
      for (int64_t q = p + 1; q < n; q++) {
        const double d = a[q * n + p], x = a[p * n + p], y = a[q * n + q];
        if (!(fabs(d) > 1e-17 * sqrt(fabs(x)) * sqrt(fabs(y))) || fabs(d) < 1e-300) continue;
        if (k > 4 && fabs(d) < 1e-17 * (fabs(x) + fabs(y))) continue;
        const double z = (y - x) / (2 * d), t = copysign(1, z) / (fabs(z) + hypot(1, z)),
                     c = 1 / hypot(1, t);
        turn(a + p * n, a + q * n, c, c * t, n, 1);
        turn(a + p, a + q, c, c * t, n, n);
        turn(v + p * n, v + q * n, c, c * t, n, 1);
        a[q * n + p] = a[p * n + q] = 0;
        turned = true;
      }
    if (!turned) return;
  }
}

/* Eigenvalues from the diagonal of a, ascending, with their columns of v in a's place. */
static void order(int64_t n, double *a, const double *v, double *w, double *diagonal) {
  for (int64_t i = 0; i < n; i++) diagonal[i] = a[i * n + i];
  for (int64_t k = 0; k < n; k++) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) best = diagonal[i] < diagonal[best] ? i : best;
    w[k] = diagonal[best];
    diagonal[best] = INFINITY;
    memcpy(a + k * n, v + best * n, (size_t)n * sizeof *v);
  }
}

typedef struct job {
  const ac_tensor *x, *w, *v;
  bool upper;
} job;

static ac_status one(const void *arg, int64_t i, double *a, ac_team *team, ac_err *e) {
  (void)team, (void)e;
  const job *j = arg;
  const ac_tensor *x = j->x;
  const int64_t n = x->shape[x->ndim - 1];
  double *w = a + n * n, *scratch = w + n, most = 0;
  bool ok = true;
  aci_matrix_load(x, aci_matrix_offset(x, x->ndim - 2, x->shape, i), j->upper, a);
  for (int64_t c = 0; c < n; c++)
    for (int64_t r = c; r < n; r++) {
      ok = ok && isfinite(a[c * n + r]);
      most = fabs(a[c * n + r]) > most ? fabs(a[c * n + r]) : most;
    }
  const double by = most > 0 ? most : 1; /* so that no square overflows */
  for (int64_t c = 0; c < n && ok; c++)
    for (int64_t r = c; r < n; r++) a[r * n + c] = a[c * n + r] = a[c * n + r] / by;
  if (ok && aci_lapack(n)) {
    ok = aci_lapack_eigh(n, a, w, scratch);
  } else if (ok) {
    jacobi(n, a, scratch);
    order(n, a, scratch, w, scratch + n * n);
  }
  for (int64_t r = 0; r < n; r++) w[r] = ok ? w[r] * by : NAN;
  for (int64_t r = 0; r < n * n && !ok; r++) a[r] = NAN;
  aci_matrix_store(j->w, i, n, 1, w, n, false);
  aci_matrix_store(j->v, i, n, n, a, n, false);
  return AC_OK;
}

static ac_status eigh_cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, A);
  const job j = {x, f->out[0], f->out[1], ARG_I(f, UPLO) == AC_EIGH_UPLO_U};
  const int64_t n = x->shape[x->ndim - 1];
  if (n == 0) return AC_OK;
  const int64_t scratch = aci_lapack(n) ? aci_lapack_eigh_scratch(n) : n * n + n;
  return aci_matrices(f, aci_matrix_count(x), n * n + n + scratch, 9.0 * (double)(n * n) * n, one,
                      &j, e);
}
ACI_ON_HOST(eigh_cpu)

static ac_tensor *mT(ac_expr *x, ac_tensor *t) { return x_transpose(x, t, -2, -1); }

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *w = g->out[0], *v = g->out[1], *dw = g->dout[0], *dv = g->dout[1], *da;
  if (dw == NULL && dv == NULL) return;
  if (dv == NULL) {
    da = x_matmul(x, x_mul(x, T(v), T(x_unsqueeze(x, dw, -2))), mT(x, v));
  } else {
    ac_tensor *ones = x_ones_like(x, v, NULL, NULL);
    ac_tensor *eye = x_sub(x, T(x_tril(x, ones, 0)), T(x_tril(x, ones, -1)), aci_float(1));
    ac_tensor *gap = x_sub(x, T(x_unsqueeze(x, w, -2)), T(x_unsqueeze(x, w, -1)), aci_float(1));
    gap = x_add(x, T(gap), T(eye), aci_float(1));
    ac_tensor *s = x_matmul(x, mT(x, v), dv);
    s = x_mul(x, T(x_sub(x, T(s), T(mT(x, s)), aci_float(1))), F(0.5)); /* the tangent part */
    s = x_div(x, T(s), T(gap));
    if (dw != NULL)
      s = x_add(x, T(s), T(x_mul(x, T(eye), T(x_unsqueeze(x, dw, -1)))), aci_float(1));
    da = x_matmul(x, v, x_matmul(x, s, mT(x, v)));
  }
  ac_grad_set(g, A, ac_grad_reduce_to(g, A, da));
}

AC_OP(eigh,
      .sig = "eigh(A: tensor, UPLO: enum(L|U) = L) -> (eigenvalues: tensor, eigenvectors: tensor)",
      .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_OUT(0) | AC_SAVE_OUT(1),
      .by_vtable = true);
