/* solve_ex: X with A X = B, by LU factors with partial pivoting. linalg.solve and linalg.inv call it.
   A (..., n, n), B (..., n, k), leading dims broadcast -> X (..., n, k), info (A's leading dims) i32: 0, or the position from 1 of the
   first zero on the diagonal of U, for which A is singular and X infinite or NaN. Dtypes: floats, computed in f64.
   gradient: dB = A^-T dX, dA = -dB X^T.
   example: local X = accel.tensor({ { 2.0, 0.0 }, { 1.0, 1.0 } }):solve_ex(accel.tensor { { 4.0 }, { 3.0 } }) return X --> { { 2 }, { 1 } } */
#include "ops/core/on_host.h"
#include "ops/linalg/lu.h"

enum { A, B };

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *a = ARG_T(f, A), *b = ARG_T(f, B);
  int64_t out[AC_MAX_DIMS];
  char s[128], t[128];
  AC_TRY(aci_matrix_check(a, true, e));
  aci_shape_str(a->ndim, a->shape, s, sizeof s);
  aci_shape_str(b->ndim, b->shape, t, sizeof t);
  if (a->dtype != b->dtype)
    return AC_FAIL(e, DTYPE, "A and B must have one dtype, got %s and %s",
                   ac_dtype_name((ac_dtype)a->dtype), ac_dtype_name((ac_dtype)b->dtype));
  if (b->ndim < 2 || b->shape[b->ndim - 2] != a->shape[a->ndim - 1])
    return AC_FAIL(e, SHAPE, "A of shape %s does not fit B of shape %s", s, t);
  const int nd = a->ndim > b->ndim ? a->ndim : b->ndim;
  for (int d = 0; d < nd - 2; d++) {
    const int i = d - (nd - a->ndim), j = d - (nd - b->ndim);
    const int64_t p = i >= 0 ? a->shape[i] : 1, q = j >= 0 ? b->shape[j] : 1;
    if (p != q && p != 1 && q != 1)
      return AC_FAIL(e, SHAPE, "batches of shapes %s and %s do not broadcast", s, t);
    out[d] = p == 1 ? q : p;
  }
  out[nd - 2] = b->shape[b->ndim - 2];
  out[nd - 1] = b->shape[b->ndim - 1];
  AC_TRY(ac_frame_out(f, (ac_dtype)b->dtype, nd, out, e));
  return ac_frame_out(f, AC_I32, a->ndim - 2, a->shape, e);
}

typedef struct job {
  const ac_tensor *a, *b, *x, *info;
} job;

/* Where the result of batch i of x goes in info: -1 unless it is the first that has this A. */
static int64_t info_at(const job *j, int64_t i) {
  int64_t at = 0, step = 1;
  const int nb = j->x->ndim - 2, shift = nb - j->info->ndim;
  for (int d = nb - 1; d >= 0; d--) {
    const int64_t pos = i % j->x->shape[d], extent = d >= shift ? j->info->shape[d - shift] : 1;
    i /= j->x->shape[d];
    if (extent == 1 && pos > 0) return -1;
    at += extent == 1 ? 0 : pos * step;
    step *= extent;
  }
  return at;
}

static ac_status one(const void *arg, int64_t i, double *a, ac_team *team, ac_err *e) {
  const job *j = arg;
  const ac_tensor *x = j->x;
  const int nb = x->ndim - 2;
  const int64_t n = x->shape[nb], k = x->shape[nb + 1];
  double *b = a + n * n;
  int64_t *pivots = (int64_t *)(void *)(b + n * k), info;
  aci_matrix_load(j->a, aci_matrix_offset(j->a, nb, x->shape, i), false, a);
  aci_matrix_load(j->b, aci_matrix_offset(j->b, nb, x->shape, i), false, b);
  AC_TRY(aci_lu(team, n, n, a, true, pivots, &info, e));
  AC_TRY(aci_lu_solve(team, n, a, pivots, k, b, e));
  if (k > 0) aci_matrix_store(x, i, n, k, b, n, false);
  if (info_at(j, i) >= 0) ((int32_t *)aci_data(j->info))[info_at(j, i)] = (int32_t)info;
  return AC_OK;
}

static ac_status solve_cpu(ac_frame *f, ac_err *e) {
  const job j = {ARG_T(f, A), ARG_T(f, B), f->out[0], f->out[1]};
  const int64_t n = j.x->shape[j.x->ndim - 2], k = j.x->shape[j.x->ndim - 1];
  return aci_matrices(f, aci_matrix_count(j.x), n * (n + k + 1) + 1, (double)(n * n) * (n + k), one,
                      &j, e);
}
ACI_ON_HOST(solve_cpu)

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *info = NULL;
  if (g->dout[0] == NULL) return;
  ac_tensor *db = x_solve_ex(x, x_transpose(x, ARG_T(g, A), -2, -1), g->dout[0], &info);
  ac_grad_set(g, B, ac_grad_reduce_to(g, B, db));
  if (!ac_grad_needs(g, A)) return;
  ac_tensor *da = x_neg(x, x_matmul(x, db, x_transpose(x, g->out[0], -2, -1)));
  ac_grad_set(g, A, ac_grad_reduce_to(g, A, da));
}

AC_OP(solve_ex, .sig = "solve_ex(A: tensor, B: tensor) -> (X: tensor, info: tensor)",
      .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(0) | AC_SAVE_OUT(0),
      .save_out_for = {1 << 0}, .by_vtable = true);
