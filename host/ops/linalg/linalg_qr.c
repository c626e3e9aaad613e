/* linalg_qr: A = Q R of complex A as pairs: orthonormal columns in Q, and upper triangular R with a real diagonal. By
   LAPACK's zgeqrf and zungqr; without the library it raises.
   A (..., m, n, 2), k = m if complete, else min(m, n) -> Q (..., m, k, 2), R (..., k, n, 2). Dtypes: floats, computed in f64.
   NaN gives NaN. The gradient is in stdlib/accel/linalg/decompositions.lua, which calls this op. */
#include "ops/core/on_host.h"
#include "ops/linalg/lapack.h"
#include "ops/linalg/pair_matrix.h"

enum { A, COMPLETE };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, A);
  const int nd = x->ndim;
  int64_t q[AC_MAX_DIMS], r[AC_MAX_DIMS];
  AC_TRY(aci_pair_matrix_check(x, false, e));
  memcpy(q, x->shape, (size_t)nd * 8);
  memcpy(r, x->shape, (size_t)nd * 8);
  q[nd - 2] = r[nd - 3] =
      ARG_B(f, COMPLETE) ? x->shape[nd - 3] : least(x->shape[nd - 3], x->shape[nd - 2]);
  AC_TRY(ac_frame_out(f, (ac_dtype)x->dtype, nd, q, e));
  return ac_frame_out(f, (ac_dtype)x->dtype, nd, r, e);
}

typedef struct job {
  const ac_tensor *x, *q, *r;
  int64_t m, n, k; /* k columns of Q */
} job;

static int64_t columns(const job *j) { return j->k > j->n ? j->k : j->n; }

static ac_status one(const void *arg, int64_t i, double *a, ac_team *team, ac_err *e) {
  (void)team;
  const job *j = arg;
  const int64_t m = j->m, n = j->n, k = j->k, s = least(m, n);
  double *r = a + 2 * m * columns(j), *tau = r + 2 * k * n;
  if (n > 0) aci_pair_matrix_load(j->x, i, a);
  if (s > 0 && !aci_lapack_qr_complex(m, n, a, tau, tau + 2 * s))
    return AC_FAIL(e, INTERNAL, "LAPACK's zgeqrf failed");
  memset(r, 0, (size_t)(2 * k * n) * sizeof *r);
  for (int64_t c = 0; c < n; c++)
    memcpy(r + 2 * c * k, a + 2 * c * m, (size_t)(2 * least(c + 1, s)) * sizeof *r);
  if (k > 0 && !aci_lapack_q_complex(m, k, s, a, tau, tau + 2 * s))
    return AC_FAIL(e, INTERNAL, "LAPACK's zungqr failed");
  aci_pair_matrix_store(j->q, i, m, k, a, m, 2);
  aci_pair_matrix_store(j->r, i, k, n, r, k, 2);
  return AC_OK;
}

static ac_status qr_cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, A);
  job j = {x, f->out[0], f->out[1], x->shape[x->ndim - 3], x->shape[x->ndim - 2], 0};
  j.k = ARG_B(f, COMPLETE) ? j.m : least(j.m, j.n);
  if (j.q->numel == 0) return AC_OK;
  AC_TRY(aci_pair_matrix_lapack(j.m, j.n, e));
  const int64_t doubles = 2 * (j.m * columns(&j) + j.k * j.n + least(j.m, j.n));
  return aci_matrices(f, aci_pair_matrix_count(x),
                      doubles + aci_lapack_qr_complex_scratch(columns(&j)),
                      8.0 * (double)(j.m * columns(&j)) * j.k, one, &j, e);
}
ACI_ON_HOST(qr_cpu)

AC_OP(linalg_qr, .sig = "linalg_qr(A: tensor, complete: bool = false) -> (Q: tensor, R: tensor)",
      .shape = shape, .cpu = cpu, .by_vtable = true, .hidden = true);
