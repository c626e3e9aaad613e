/* linalg_lu: P A = L U with partial pivoting of complex A as pairs, both in LU. By LAPACK's zgetrf; without the library it
   raises.
   A (..., m, n, 2), k = min(m, n) -> LU (..., m, n, 2), pivots (..., k) i32 from 1, info (...) i32: 0, or the position from 1
   of the first zero on the diagonal of U. Dtypes: floats, computed in f64. The gradient is in
   stdlib/accel/linalg/decompositions.lua, which calls this op. */
#include "ops/core/on_host.h"
#include "ops/linalg/lapack.h"
#include "ops/linalg/pair_matrix.h"

enum { A };

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, A);
  const int nd = x->ndim;
  int64_t p[AC_MAX_DIMS];
  AC_TRY(aci_pair_matrix_check(x, false, e));
  memcpy(p, x->shape, (size_t)nd * 8);
  p[nd - 3] = x->shape[nd - 3] < x->shape[nd - 2] ? x->shape[nd - 3] : x->shape[nd - 2];
  AC_TRY(ac_frame_out(f, (ac_dtype)x->dtype, nd, x->shape, e));
  AC_TRY(ac_frame_out(f, AC_I32, nd - 2, p, e));
  return ac_frame_out(f, AC_I32, nd - 3, p, e);
}

typedef struct job {
  const ac_tensor *x, *lu, *pivots, *info;
  int64_t m, n, k;
} job;

static ac_status one(const void *arg, int64_t i, double *a, ac_team *team, ac_err *e) {
  (void)team, (void)e;
  const job *j = arg;
  int32_t *pivots = (int32_t *)aci_data(j->pivots) + i * j->k;
  aci_pair_matrix_load(j->x, i, a);
  ((int32_t *)aci_data(j->info))[i] = aci_lapack_lu_complex(j->m, j->n, a, pivots);
  aci_pair_matrix_store(j->lu, i, j->m, j->n, a, j->m, 2);
  return AC_OK;
}

static ac_status lu_cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, A), *info = f->out[2];
  job j = {x, f->out[0], f->out[1], info, x->shape[x->ndim - 3], x->shape[x->ndim - 2], 0};
  j.k = j.m < j.n ? j.m : j.n;
  if (info->numel > 0) memset(aci_data(info), 0, (size_t)info->numel * sizeof(int32_t));
  if (x->numel == 0) return AC_OK;
  AC_TRY(aci_pair_matrix_lapack(j.m, j.n, e));
  return aci_matrices(f, aci_pair_matrix_count(x), 2 * j.m * j.n, 3.0 * (double)(j.m * j.n) * j.k,
                      one, &j, e);
}
ACI_ON_HOST(lu_cpu)

AC_OP(linalg_lu, .sig = "linalg_lu(A: tensor) -> (LU: tensor, pivots: tensor, info: tensor)",
      .shape = shape, .cpu = cpu, .by_vtable = true, .hidden = true);
