/* lu_factor_ex: P A = L U with partial pivoting: L has ones on its diagonal, U is upper triangular. Both are in LU.
   A (..., m, n), k = min(m, n) -> LU (..., m, n), pivots (..., k) i32 from 1 as LAPACK's: row i was exchanged with row
   pivots[i]; info (...) i32: 0, or the position from 1 of the first zero on the diagonal of U; order (..., m) i64: row i
   of L U is row order[i] of A. pivot false: no exchanges, pivots and order stay 1, 2, ... and 0, 1, .... Dtypes: floats,
   computed in f64.
   gradient, with L' = L^T dL - dU2 U2^T below the diagonal (the last term for m < n) and U' = dU U^T - L2^T dL2 on and
   above it (for m > n): the first k rows and columns of P dA are L^-T (L' + U') U^-T, further columns L^-T dU2, further
   rows dL2 U^-T (PyTorch's plu_backward; Walter and Lehmann, Algorithmic differentiation of LU).
   example: local LU = accel.tensor({ { 1.0, 2.0 }, { 2.0, 2.0 } }):lu_factor_ex() return LU --> { { 2, 2 }, { 0.5, 1 } } */
#include "ops/core/on_host.h"
#include "ops/linalg/lu.h"

enum { A, PIVOT };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, A);
  AC_TRY(aci_matrix_check(x, false, e));
  const int nd = x->ndim;
  int64_t p[AC_MAX_DIMS];
  memcpy(p, x->shape, (size_t)nd * 8);
  p[nd - 2] = least(x->shape[nd - 2], x->shape[nd - 1]);
  AC_TRY(ac_frame_out(f, (ac_dtype)x->dtype, nd, x->shape, e));
  AC_TRY(ac_frame_out(f, AC_I32, nd - 1, p, e));
  AC_TRY(ac_frame_out(f, AC_I32, nd - 2, p, e));
  return ac_frame_out(f, AC_I64, nd - 1, x->shape, e);
}

typedef struct job {
  const ac_tensor *x, *lu, *pivots, *info, *order;
  bool pivot;
} job;

static ac_status one(const void *arg, int64_t i, double *a, ac_team *team, ac_err *e) {
  const job *j = arg;
  const ac_tensor *x = j->x;
  const int64_t m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1], k = least(m, n);
  int64_t *pivots = (int64_t *)(void *)(a + m * n), info,
          *order = (int64_t *)aci_data(j->order) + i * m;
  aci_matrix_load(x, aci_matrix_offset(x, x->ndim - 2, x->shape, i), false, a);
  AC_TRY(aci_lu(team, m, n, a, j->pivot, pivots, &info, e));
  aci_matrix_store(j->lu, i, m, n, a, m, false);
  for (int64_t r = 0; r < m; r++) order[r] = r;
  for (int64_t r = 0; r < k; r++) {
    const int64_t t = order[r];
    order[r] = order[pivots[r]];
    order[pivots[r]] = t;
    ((int32_t *)aci_data(j->pivots))[i * k + r] = (int32_t)(pivots[r] + 1);
  }
  ((int32_t *)aci_data(j->info))[i] = (int32_t)info;
  return AC_OK;
}

static ac_status lu_cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, A);
  const job j = {x, f->out[0], f->out[1], f->out[2], f->out[3], ARG_B(f, PIVOT)};
  const int64_t m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1];
  return aci_matrices(f, aci_matrix_count(x), m * n + least(m, n) + 1,
                      (double)(m * n) * least(m, n), one, &j, e);
}
ACI_ON_HOST(lu_cpu)

static ac_tensor *mT(ac_expr *x, ac_tensor *t) { return x_transpose(x, t, -2, -1); }
static ac_tensor *minus(ac_expr *x, ac_tensor *a, ac_tensor *b) {
  return x_sub(x, T(a), T(b), aci_float(1));
}

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *lu = g->out[0], *d = g->dout[0], *order = g->out[3];
  const int nd = lu->ndim;
  const int64_t m = lu->shape[nd - 2], n = lu->shape[nd - 1], k = least(m, n);
  if (d == NULL) return;
  ac_tensor *L = x_narrow(x, lu, -1, 0, k), *U = x_narrow(x, lu, -2, 0, k),
            *dL = x_narrow(x, d, -1, 0, k), *dU = x_narrow(x, d, -2, 0, k);
  ac_tensor *L1 = x_narrow(x, L, -2, 0, k), *U1 = x_narrow(x, U, -1, 0, k), *eye;
  eye = x_sub(x, T(x_tril(x, x_ones_like(x, L1, NULL, NULL), 0)),
              T(x_tril(x, x_ones_like(x, L1, NULL, NULL), -1)), aci_float(1));
  L1 = x_add(x, T(x_tril(x, L1, -1)), T(eye), aci_float(1));
  U1 = x_triu(x, U1, 0);
  ac_tensor *dL1 = x_tril(x, x_narrow(x, dL, -2, 0, k), -1),
            *dU1 = x_triu(x, x_narrow(x, dU, -1, 0, k), 0), *dL2 = NULL, *dU2 = NULL;
  ac_tensor *below = x_matmul(x, mT(x, L1), dL1), *above = x_matmul(x, dU1, mT(x, U1));
  if (m < n) {
    dU2 = x_narrow(x, dU, -1, k, n - k);
    below = minus(x, below, x_matmul(x, dU2, mT(x, x_narrow(x, U, -1, k, n - k))));
  } else if (m > n) {
    dL2 = x_narrow(x, dL, -2, k, m - k);
    above = minus(x, above, x_matmul(x, mT(x, x_narrow(x, L, -2, k, m - k)), dL2));
  }
  ac_tensor *s = x_add(x, T(x_tril(x, below, -1)), T(x_triu(x, above, 0)), aci_float(1));
  ac_tensor *parts[2] = {x_solve_triangular(
      x, mT(x, L1), x_solve_triangular(x, mT(x, U1), s, false, false, false), true, true, true)};
  if (m < n) parts[1] = x_solve_triangular(x, mT(x, L1), dU2, true, true, true);
  if (m > n) parts[1] = x_solve_triangular(x, mT(x, U1), dL2, false, false, false);
  ac_tensor *da = parts[0];
  if (m != n) da = parts[0] && parts[1] ? x_cat(x, parts, 2, m < n ? -1 : -2) : NULL;
  ac_tensor *back = x_argsort(x, order, -1, false, false); /* row i of A is row back[i] of L U */
  da = x_gather(x, da, -2, x_expand(x, x_unsqueeze(x, back, -1), lu->shape, nd));
  ac_grad_set(g, A, ac_grad_reduce_to(g, A, da));
}

AC_OP(lu_factor_ex,
      .sig = "lu_factor_ex(A: tensor, pivot: bool = true) -> (LU: tensor, pivots: tensor, "
             "info: tensor, order: tensor)",
      .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_OUT(0) | AC_SAVE_OUT(3),
      .by_vtable = true);
