/* qr: x = q r with orthonormal columns in q and upper triangular r, by Householder reflections with LAPACK's signs:
   the diagonal of r may be negative.
   x (..., m, n), k = min(m, n) -> q (..., m, k), r (..., k, n). mode complete: q (..., m, m), r (..., m, n). mode
   r: q empty, r (..., k, n). Dtypes: floats, computed in f64.
   gradient, for m >= n: dx = (dq + q S(r dr^T - dq^T q)) r^-T, with S the symmetric matrix of that lower triangle.
   For m < n the columns after the first m are products of q: their share goes into dq. None for mode r, nor for
   complete with m > n. Rank-deficient x give infinities.
   example: local q, r = accel.tensor({ { 3.0 }, { 4.0 } }):qr() return q, r --> { { -0.6 }, { -0.8 } }, { { -5 } } */
#include <stdatomic.h>

#include "ops/index/index.h"
#include "ops/linalg/householder.h"
#include "ops/reduce/slots.h"

enum { X, MODE };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, X);
  const int nd = x->ndim;
  int64_t q[AC_MAX_DIMS], r[AC_MAX_DIMS], none = 0;
  char a[128];
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "needs a float tensor, got %s", ac_dtype_name((ac_dtype)x->dtype));
  if (nd < 2)
    return AC_FAIL(e, SHAPE, "needs a matrix or a batch of them, got shape %s",
                   aci_shape_str(nd, x->shape, a, sizeof a));
  memcpy(q, x->shape, (size_t)nd * 8);
  memcpy(r, x->shape, (size_t)nd * 8);
  const int64_t m = x->shape[nd - 2], k = least(m, x->shape[nd - 1]);
  q[nd - 1] = ARG_I(f, MODE) == AC_QR_MODE_COMPLETE ? m : k;
  r[nd - 2] = q[nd - 1];
  const bool only_r = ARG_I(f, MODE) == AC_QR_MODE_R;
  AC_TRY(ac_frame_out(f, (ac_dtype)x->dtype, only_r ? 1 : nd, only_r ? &none : q, e));
  return ac_frame_out(f, (ac_dtype)x->dtype, nd, r, e);
}

typedef struct qr_job {
  const ac_tensor *x, *q, *r;
  ac_team *team; /* of the products. NULL while batches share the threads */
  aci_slots *slots;
  int64_t m, n, kq, kr;
  _Atomic bool oom;
} qr_job;

static ac_status one(const qr_job *j, int64_t i, double *a, ac_err *e) {
  const ac_dtype dt = (ac_dtype)j->x->dtype;
  const int64_t es = (int64_t)aci_dsize(dt), m = j->m, n = j->n;
  double *q = a + m * n, *scratch = q + m * j->kq;
  int64_t off = 0, rest = i;
  const ac_tensor *x = j->x;
  for (int d = x->ndim - 3; d >= 0; d--) {
    off += rest % x->shape[d] * x->stride[d];
    rest /= x->shape[d];
  }
  const char *src = (const char *)aci_data(x) + off * es;
  for (int64_t c = 0; c < n; c++)
    aci_load(ACI_C_F64, a + c * m, dt, src + c * x->stride[x->ndim - 1] * es,
             x->stride[x->ndim - 2], m);
  AC_TRY(aci_householder_qr(j->team, m, n, a, j->kq, q, scratch, e));
  char *pr = j->r->numel > 0 ? (char *)aci_data(j->r) + i * j->kr * n * es : NULL,
       *pq = j->kq > 0 ? (char *)aci_data(j->q) + i * m * j->kq * es : NULL;
  for (int64_t c = 0; c < n; c++) {
    for (int64_t k = c + 1; k < m; k++) a[c * m + k] = 0;
    aci_store(ACI_C_F64, a + c * m, dt, pr + c * es, n, j->kr);
  }
  for (int64_t c = 0; c < j->kq; c++) aci_store(ACI_C_F64, q + c * m, dt, pq + c * es, j->kq, m);
  return AC_OK;
}

static void batches(void *arg, int64_t begin, int64_t end) {
  qr_job *j = arg;
  int slot = aci_slots_take(j->slots);
  for (int64_t i = begin; i < end; i++) {
    ac_err e;
    if (one(j, i, (double *)(void *)aci_slots_at(j->slots, slot), &e) != AC_OK) j->oom = true;
  }
  aci_slots_give(j->slots, slot);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, X), *q = f->out[0], *r = f->out[1];
  aci_slots slots;
  qr_job j = {.x = x,
              .q = q,
              .r = r,
              .slots = &slots,
              .m = x->shape[x->ndim - 2],
              .n = x->shape[x->ndim - 1]};
  j.kr = r->shape[r->ndim - 2];
  j.kq = ARG_I(f, MODE) == AC_QR_MODE_R ? 0 : q->shape[q->ndim - 1];
  if (q->numel == 0 && r->numel == 0) return AC_OK;
  int64_t n_batch = 1;
  for (int d = 0; d < x->ndim - 2; d++) n_batch *= x->shape[d];
  const int64_t doubles = j.m * j.n + j.m * j.kq + aci_householder_scratch(j.m, j.n, j.kq);
  AC_TRY(aci_slots_open(&slots, f, n_batch, (size_t)doubles * sizeof(double), e));
  if (n_batch == 1) {
    j.team = f->team;
    batches(&j, 0, 1);
  } else {
    ac_parallel_for(f->team, n_batch, 1 + 65536 / (doubles * least(j.m, j.n) + 1), batches, &j);
  }
  aci_slots_close(&slots);
  return j.oom ? AC_FAIL(e, OOM, "out of memory for the scratch of the factors") : AC_OK;
}

static ac_tensor *mT(ac_expr *x, ac_tensor *t) { return x_transpose(x, t, -2, -1); }
static ac_tensor *wide(ac_expr *x, ac_tensor *t) {
  return t == NULL || t->dtype == AC_F64 || t->dtype == AC_F32 ? t : x_cast(x, t, AC_F32);
}
static ac_tensor *plus(ac_expr *x, ac_tensor *a, ac_tensor *b) {
  return a == NULL ? b : b == NULL ? a : x_add(x, T(a), T(b), aci_float(1));
}

/* For q (m, k) and square r. dq or dr may be NULL. */
static ac_tensor *square_grad(ac_expr *x, ac_tensor *q, ac_tensor *r, ac_tensor *dq,
                              ac_tensor *dr) {
  ac_tensor *a = dr != NULL ? x_matmul(x, r, mT(x, dr)) : NULL,
            *b = dq != NULL ? x_neg(x, x_matmul(x, mT(x, dq), q)) : NULL, *s = plus(x, a, b);
  s = plus(x, x_tril(x, s, 0), mT(x, x_tril(x, s, -1)));
  ac_tensor *y = plus(x, x_matmul(x, q, s), dq);
  return x_solve_triangular(x, mT(x, r), y, false, false, false); /* y r^-T */
}

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *q = wide(x, g->out[0]), *r = wide(x, g->out[1]), *dq = wide(x, g->dout[0]),
            *dr = wide(x, g->dout[1]);
  const int nd = ac_grad_ndim(g, X, 0);
  const int64_t m = ac_grad_shape(g, X, 0)[nd - 2], n = ac_grad_shape(g, X, 0)[nd - 1];
  if (ARG_I(g, MODE) == AC_QR_MODE_R) {
    x->st =
        AC_FAIL(x->e, GRAD, "qr in mode r keeps no q, which its gradient needs; use mode reduced");
  } else if (ARG_I(g, MODE) == AC_QR_MODE_COMPLETE && m > n) {
    x->st =
        AC_FAIL(x->e, GRAD,
                "qr in mode complete has no gradient for more rows than columns; use mode reduced");
  }
  if (x->st != AC_OK || q == NULL || r == NULL) return;
  ac_tensor *dx;
  if (m >= n) {
    dx = square_grad(x, q, r, dq, dr);
  } else { /* [u v] = r, x = [q u, q v] */
    ac_tensor *u = x_narrow(x, r, -1, 0, m), *v = x_narrow(x, r, -1, m, n - m), *du = NULL, *last;
    if (dr != NULL) {
      ac_tensor *dv = x_narrow(x, dr, -1, m, n - m);
      du = x_narrow(x, dr, -1, 0, m);
      dq = plus(x, dq, x_matmul(x, q, x_matmul(x, v, mT(x, dv))));
      last = x_matmul(x, q, dv);
    } else {
      last = x_zeros_like(x, v, NULL, NULL);
    }
    ac_tensor *both[2] = {square_grad(x, q, u, dq, du), last};
    dx = both[0] != NULL && last != NULL ? x_cat(x, both, 2, -1) : NULL;
  }
  ac_grad_set(g, X, ac_grad_reduce_to(g, X, dx));
}

AC_OP(qr,
      .sig = "qr(x: tensor, mode: enum(reduced|complete|r) = reduced) -> (q: tensor, r: tensor)",
      .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_OUT(0) | AC_SAVE_OUT(1));
