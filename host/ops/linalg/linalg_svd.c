/* linalg_svd: x = u diag(s) vh of complex x as pairs, s descending. By LAPACK's zgesdd; without the library it raises.
   x (..., m, n, 2), k = min(m, n) -> u (..., m, k, 2), s (..., k), vh (..., k, n, 2). Dtypes: floats, computed in f64. NaN
   and infinity give NaN. The gradient is in stdlib/accel/linalg/decompositions.lua, which calls this op. */
#include <math.h>

#include "ops/core/on_host.h"
#include "ops/linalg/lapack.h"
#include "ops/linalg/pair_matrix.h"

enum { X };

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, X);
  const int nd = x->ndim;
  int64_t u[AC_MAX_DIMS], s[AC_MAX_DIMS], v[AC_MAX_DIMS];
  AC_TRY(aci_pair_matrix_check(x, false, e));
  memcpy(u, x->shape, (size_t)nd * 8);
  memcpy(s, x->shape, (size_t)nd * 8);
  memcpy(v, x->shape, (size_t)nd * 8);
  const int64_t m = x->shape[nd - 3], n = x->shape[nd - 2];
  u[nd - 2] = s[nd - 3] = v[nd - 3] = m < n ? m : n;
  AC_TRY(ac_frame_out(f, (ac_dtype)x->dtype, nd, u, e));
  AC_TRY(ac_frame_out(f, (ac_dtype)x->dtype, nd - 2, s, e));
  return ac_frame_out(f, (ac_dtype)x->dtype, nd, v, e);
}

typedef struct job {
  const ac_tensor *x, *u, *s, *vh;
  int64_t m, n, k;
} job;

static ac_status one(const void *arg, int64_t i, double *a, ac_team *team, ac_err *e) {
  (void)team, (void)e;
  const job *j = arg;
  const int64_t m = j->m, n = j->n, k = j->k;
  double *u = a + 2 * m * n, *vh = u + 2 * m * k, *s = vh + 2 * k * n;
  const bool ok =
      aci_pair_matrix_load(j->x, i, a) && aci_lapack_svd_complex(m, n, a, u, s, vh, s + k);
  for (int64_t r = 0; r < 2 * (m + n) * k + k && !ok; r++)
    u[r] = NAN; /* and vh and s, which follow */
  aci_pair_matrix_store(j->u, i, m, k, u, m, 2);
  aci_pair_matrix_store(j->s, i, k, 1, s, k, 1);
  aci_pair_matrix_store(j->vh, i, k, n, vh, k, 2);
  return AC_OK;
}

static ac_status svd_cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, X);
  job j = {x, f->out[0], f->out[1], f->out[2], x->shape[x->ndim - 3], x->shape[x->ndim - 2], 0};
  j.k = j.m < j.n ? j.m : j.n;
  if (x->numel == 0) return AC_OK;
  AC_TRY(aci_pair_matrix_lapack(j.m, j.n, e));
  const int64_t doubles = 2 * (j.m * j.n + (j.m + j.n) * j.k) + j.k;
  return aci_matrices(f, aci_pair_matrix_count(x),
                      doubles + aci_lapack_svd_complex_scratch(j.m, j.n),
                      80.0 * (double)(j.m * j.n) * j.k, one, &j, e);
}
ACI_ON_HOST(svd_cpu)

AC_OP(linalg_svd, .sig = "linalg_svd(x: tensor) -> (u: tensor, s: tensor, vh: tensor)",
      .shape = shape, .cpu = cpu, .by_vtable = true, .hidden = true);
