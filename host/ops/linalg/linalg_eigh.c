/* linalg_eigh: A = V diag(w) V^H of Hermitian A as pairs: eigenvalues w ascending, eigenvectors in the columns of V. Only
   the lower triangle is read, or the upper one. By LAPACK's zheevd; without the library it raises.
   A (..., n, n, 2) -> eigenvalues (..., n), eigenvectors (..., n, n, 2). Dtypes: floats, computed in f64. NaN and infinity
   give NaN. The gradient is in stdlib/accel/linalg/decompositions.lua, which calls this op. */
#include <math.h>

#include "ops/core/on_host.h"
#include "ops/linalg/lapack.h"
#include "ops/linalg/pair_matrix.h"

enum { A, UPPER };

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, A);
  AC_TRY(aci_pair_matrix_check(x, true, e));
  AC_TRY(ac_frame_out(f, (ac_dtype)x->dtype, x->ndim - 2, x->shape, e));
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}

typedef struct job {
  const ac_tensor *x, *w, *v;
  int64_t n;
  bool upper;
} job;

static ac_status one(const void *arg, int64_t i, double *a, ac_team *team, ac_err *e) {
  (void)team, (void)e;
  const job *j = arg;
  const int64_t n = j->n;
  double *w = a + 2 * n * n;
  bool ok = true;
  aci_pair_matrix_load(j->x, i, a);
  for (int64_t c = 0; c < n; c++)
    for (int64_t r = 0; r < n; r++) {
      const double *z = a + 2 * (c * n + r);
      if (r == c ? !isfinite(z[0]) : (r < c) == j->upper && !(isfinite(z[0]) && isfinite(z[1])))
        ok = false;
    }
  ok = ok && aci_lapack_eigh_complex(n, j->upper, a, w, w + n);
  for (int64_t k = 0; k < 2 * n * n + n && !ok; k++) a[k] = NAN; /* and w, which follows */
  aci_pair_matrix_store(j->w, i, n, 1, w, n, 1);
  aci_pair_matrix_store(j->v, i, n, n, a, n, 2);
  return AC_OK;
}

static ac_status eigh_cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, A);
  const job j = {x, f->out[0], f->out[1], x->shape[x->ndim - 2], ARG_B(f, UPPER)};
  if (x->numel == 0) return AC_OK;
  AC_TRY(aci_pair_matrix_lapack(j.n, j.n, e));
  return aci_matrices(f, aci_pair_matrix_count(x),
                      2 * j.n * j.n + j.n + aci_lapack_eigh_complex_scratch(j.n),
                      36.0 * (double)(j.n * j.n) * j.n, one, &j, e);
}
ACI_ON_HOST(eigh_cpu)

AC_OP(
    linalg_eigh,
    .sig =
        "linalg_eigh(A: tensor, upper: bool = false) -> (eigenvalues: tensor, eigenvectors: tensor)",
    .shape = shape, .cpu = cpu, .by_vtable = true, .hidden = true);
