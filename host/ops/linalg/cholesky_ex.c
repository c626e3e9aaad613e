/* cholesky_ex: A = L L^T with lower triangular L, or A = U^T U with upper = true, for symmetric positive definite A.
   Only the elements of that triangle are read.
   A (..., n, n) -> L (..., n, n), info (...) i32: 0, or the order of the first leading block that is not positive
   definite, from whose column on L holds no factor. Dtypes: floats, computed in f64.
   gradient: dA = (S + S^T) / 2 with S = L^-T P L^-1, and P the lower triangle of L^T dL with half its diagonal (Murray,
   Differentiation of the Cholesky decomposition, 2016).
   example: local L = accel.tensor({ { 4.0, 2.0 }, { 2.0, 5.0 } }):cholesky_ex() return L --> { { 2, 0 }, { 1, 2 } } */
#include <math.h>

#include "device/cpu/isa.h"
#include "ops/core/on_host.h"
#include "ops/linalg/matrix.h"

enum { A, UPPER, NB = 32 };

AC_ISA_FN(subtract, (double *restrict y, const double *restrict x, double by, int64_t n),
          (y, x, by, n)) {
  for (int64_t i = 0; i < n; i++) y[i] -= by * x[i];
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, A);
  AC_TRY(aci_matrix_check(x, true, e));
  AC_TRY(ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e));
  return ac_frame_out(f, AC_I32, x->ndim - 2, x->shape, e);
}

/* The lower triangle of a (n columns of n) becomes L. Returns the position of the first pivot that is not positive. */
static ac_status factor(ac_team *team, int64_t n, double *a, int64_t *info, ac_err *e) {
  *info = 0;
  for (int64_t j0 = 0; j0 < n; j0 += NB) {
    const int64_t nb = n - j0 < NB ? n - j0 : NB, next = j0 + nb;
    for (int64_t j = j0; j < next; j++) {
      double *x = a + j * n;
      if (!(x[j] > 0)) {
        *info = j + 1;
        return AC_OK;
      }
      x[j] = sqrt(x[j]);
      for (int64_t i = j + 1; i < n; i++) x[i] /= x[j];
      for (int64_t c = j + 1; c < next; c++) subtract(a + c * n + c, x + c, x[c], n - c);
    }
    for (int64_t c = next; c < n; c += NB) { /* column block c, as rows of its transpose */
      const int64_t w = n - c < NB ? n - c : NB;
      for (int64_t k = j0; k < next && w < 4; k++)
        for (int64_t i = c; i < c + w; i++)
          subtract(a + i * n + i, a + k * n + i, a[k * n + i], n - i);
      if (w >= 4) {
        double left[NB * NB]; /* rows c.. of the panel */
        for (int64_t i = 0; i < w; i++)
          for (int64_t k = 0; k < nb; k++) left[i * nb + k] = a[(j0 + k) * n + c + i];
        AC_TRY(aci_matrix_subtract(team, w, n - c, nb, left, nb, a + j0 * n + c, n, 1,
                                   a + c * n + c, n, e));
      }
    }
  }
  return AC_OK;
}

typedef struct job {
  const ac_tensor *x, *l, *info;
  bool upper;
} job;

static ac_status one(const void *arg, int64_t i, double *a, ac_team *team, ac_err *e) {
  const job *j = arg;
  const ac_tensor *x = j->x;
  const int64_t n = x->shape[x->ndim - 1];
  int64_t info;
  aci_matrix_load(x, aci_matrix_offset(x, x->ndim - 2, x->shape, i), j->upper, a);
  AC_TRY(factor(team, n, a, &info, e));
  for (int64_t c = 1; c < n; c++)
    for (int64_t r = 0; r < c; r++) a[c * n + r] = 0;
  if (n > 0) aci_matrix_store(j->l, i, n, n, a, n, j->upper);
  ((int32_t *)aci_data(j->info))[i] = (int32_t)info;
  return AC_OK;
}

static ac_status cholesky_cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, A);
  const job j = {x, f->out[0], f->out[1], ARG_B(f, UPPER)};
  const int64_t n = x->shape[x->ndim - 1];
  return aci_matrices(f, aci_matrix_count(x), n * n + 1, (double)(n * n) * n / 3, one, &j, e);
}
ACI_ON_HOST(cholesky_cpu)

static ac_tensor *mT(ac_expr *x, ac_tensor *t) { return x_transpose(x, t, -2, -1); }
static ac_tensor *plus(ac_expr *x, ac_tensor *a, ac_tensor *b) {
  return x_add(x, T(a), T(b), aci_float(1));
}

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *l = g->out[0], *d = g->dout[0];
  if (d == NULL) return;
  if (ARG_B(g, UPPER)) {
    l = mT(x, l);
    d = mT(x, d);
  }
  ac_tensor *p = x_matmul(x, mT(x, l), x_tril(x, d, 0));
  p = x_mul(x, T(plus(x, x_tril(x, p, 0), x_tril(x, p, -1))), F(0.5));
  ac_tensor *s = x_solve_triangular(x, mT(x, l), p, true, true, false);
  s = x_solve_triangular(x, l, s, false, false, false);
  ac_grad_set(g, A, x_mul(x, T(plus(x, s, mT(x, s))), F(0.5)));
}

AC_OP(cholesky_ex,
      .sig = "cholesky_ex(A: tensor, upper: bool = false) -> (L: tensor, info: tensor)",
      .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_OUT(0), .by_vtable = true);
