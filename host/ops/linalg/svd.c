/* svd: x = u diag(s) vh with orthonormal columns in u, orthonormal rows in vh and s descending. By LAPACK's dgesdd from
   17 rows and columns on if the system has it, otherwise by one-sided Jacobi rotations (Hestenes). Signs of the pairs of
   columns and rows are free, as are the vectors of equal or zero values.
   x (..., m, n), k = min(m, n) -> u (..., m, k), s (..., k), vh (..., k, n). Dtypes: floats, computed in f64. NaN and
   infinity give NaN.
   gradient: dx = u (A diag(s) + diag(s) B + diag(ds)) vh + (I - u u^T) du diag(1/s) vh + u diag(1/s) dvh (I - vh^T vh),
   with A = skew(u^T du) / E, B = skew(vh dvh^T) / E, skew(X) = X - X^T, E_ij = s_j^2 - s_i^2 (1 on the diagonal); infinite
   for equal values if du or dvh is given (Townsend, Differentiating the singular value decomposition, 2016).
   example: local u, s, vh = accel.tensor({ { 0.0, 2.0 }, { 3.0, 0.0 } }):svd() return s --> { 3, 2 } */
#include <math.h>
#include <stdatomic.h>

#include "ops/core/on_host.h"
#include "ops/linalg/lapack.h"
#include "ops/linalg/matrix.h"

enum { X, SWEEPS = 60 };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, X);
  const int nd = x->ndim;
  int64_t u[AC_MAX_DIMS], s[AC_MAX_DIMS], v[AC_MAX_DIMS];
  AC_TRY(aci_matrix_check(x, false, e));
  memcpy(u, x->shape, (size_t)nd * 8);
  memcpy(s, x->shape, (size_t)nd * 8);
  memcpy(v, x->shape, (size_t)nd * 8);
  u[nd - 1] = s[nd - 2] = v[nd - 2] = least(x->shape[nd - 2], x->shape[nd - 1]);
  AC_TRY(ac_frame_out(f, (ac_dtype)x->dtype, nd, u, e));
  AC_TRY(ac_frame_out(f, (ac_dtype)x->dtype, nd - 1, s, e));
  return ac_frame_out(f, (ac_dtype)x->dtype, nd, v, e);
}

/* A matrix with at least as many rows as columns, by columns: a (n columns of m) becomes u * s, v (n columns of n)
   collects the rotations. */
typedef struct jacobi {
  int64_t m, n, round;
  double *a, *v;
  _Atomic bool turned;
} jacobi;

static double dot(const double *x, const double *y, int64_t n) {
  double s[4] = {0};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int k = 0; k < 4; k++) s[k] += x[i + k] * y[i + k];
  for (; i < n; i++) s[0] += x[i] * y[i];
  return (s[0] + s[1]) + (s[2] + s[3]);
}

static void rotate(double *x, double *y, double c, double s, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    const double p = x[i], q = y[i];
    x[i] = c * p - s * q;
    y[i] = s * p + c * q;
  }
}

/* Makes two columns orthogonal to each other. */
static bool pair(const jacobi *j, int64_t p, int64_t q) {
  double *x = j->a + p * j->m, *y = j->a + q * j->m;
  const double a = dot(x, x, j->m), b = dot(y, y, j->m), d = dot(x, y, j->m);
  if (!(fabs(d) > 1e-15 * sqrt(a) * sqrt(b))) return false;
  const double z = (b - a) / (2 * d), t = copysign(1, z) / (fabs(z) + hypot(1, z)),
               c = 1 / hypot(1, t);
  rotate(x, y, c, c * t, j->m);
  rotate(j->v + p * j->n, j->v + q * j->n, c, c * t, j->n);
  return true;
}

/* The pairs of a round of a tournament have no column in common, so that their order does not matter. */
static void pairs(void *arg, int64_t begin, int64_t end) {
  jacobi *j = arg;
  const int64_t even = j->n + j->n % 2, rest = even - 1;
  for (int64_t i = begin; i < end; i++) {
    int64_t p = i == 0 ? rest : (j->round + i) % rest, q = (j->round + rest - i) % rest;
    if (p >= j->n || q >= j->n) continue;
    if (p > q) {
      const int64_t other = p;
      p = q;
      q = other;
    }
    if (pair(j, p, q)) j->turned = true;
  }
}

static void sweep(jacobi *j, ac_team *team) {
  const int64_t even = j->n + j->n % 2;
  for (j->round = 0; j->round < even - 1; j->round++) {
    if (team == NULL) pairs(j, 0, even / 2);
    else ac_parallel_for(team, even / 2, 1 + 16384 / (j->m + 1), pairs, j);
  }
}

/* A column of length 1 that is orthogonal to the first `done` columns of u. */
static void complete(double *u, int64_t m, int64_t done) {
  double *x = u + done * m;
  for (int64_t unit = 0; unit < m; unit++) {
    memset(x, 0, (size_t)m * sizeof *x);
    x[unit] = 1;
    for (int again = 0; again < 2; again++)
      for (int64_t c = 0; c < done; c++) {
        const double d = dot(u + c * m, x, m);
        for (int64_t i = 0; i < m; i++) x[i] -= d * u[c * m + i];
      }
    const double size = sqrt(dot(x, x, m));
    if (size < 0.5 / sqrt((double)m)) continue;
    for (int64_t i = 0; i < m; i++) x[i] /= size;
    return;
  }
}

typedef struct svd_job {
  const ac_tensor *x, *u, *s, *vh;
  int64_t m, n; /* of the tall matrix: x, or x transposed */
  bool turned, lapack;
} svd_job;

static int64_t doubles(const svd_job *j) {
  const int64_t mn = j->m * j->n, nn = j->n * j->n;
  return j->lapack ? 2 * mn + nn + j->n + aci_lapack_svd_scratch(j->m, j->n) : 2 * (mn + nn + j->n);
}

/* Columns in the order of their lengths, which go to s, made of length 1. */
static void order(const jacobi *j, double *u, double *v, double *s, double *length) {
  const int64_t m = j->m, n = j->n;
  double largest = 0;
  for (int64_t c = 0; c < n; c++) {
    length[c] = sqrt(dot(j->a + c * m, j->a + c * m, m));
    largest = length[c] > largest ? length[c] : largest;
  }
  for (int64_t k = 0; k < n; k++) {
    int64_t best = 0;
    for (int64_t c = 1; c < n; c++) best = length[c] > length[best] ? c : best;
    s[k] = length[best];
    length[best] = -1;
    memcpy(v + k * n, j->v + best * n, (size_t)n * sizeof *v);
    memcpy(u + k * m, j->a + best * m, (size_t)m * sizeof *u);
    if (s[k] <= 1e-290 || s[k] <= largest * 1e-300) complete(u, m, k);
    else
      for (int64_t i = 0; i < m; i++) u[k * m + i] /= s[k];
  }
}

/* The tall matrix a = u diag(s) v^T with v (n columns of n). Returns false if it does not converge. */
static bool factors(const svd_job *job, ac_team *team, double *a, double *u, double *s, double *v,
                    double *scratch) {
  const int64_t m = job->m, n = job->n;
  if (job->lapack) {
    if (!aci_lapack_svd(m, n, a, u, s, v, scratch)) return false;
    for (int64_t c = 0; c < n; c++)
      for (int64_t r = 0; r < c; r++) { /* it gives v^T */
        const double t = v[c * n + r];
        v[c * n + r] = v[r * n + c];
        v[r * n + c] = t;
      }
    return true;
  }
  jacobi j = {.m = m, .n = n, .a = a, .v = scratch};
  memset(scratch, 0, (size_t)(n * n) * sizeof *scratch);
  for (int64_t c = 0; c < n; c++) scratch[c * n + c] = 1;
  for (int k = 0; k < SWEEPS && n > 1; k++) {
    j.turned = false;
    sweep(&j, team);
    if (!j.turned) break;
  }
  order(&j, u, v, s, scratch + n * n);
  return true;
}

static ac_status one(const void *arg, int64_t index, double *a, ac_team *team, ac_err *e) {
  (void)e;
  const svd_job *job = arg;
  const ac_tensor *x = job->x;
  const int64_t m = job->m, n = job->n;
  double *u = a + m * n, *v = u + m * n, *s = v + n * n, most = 0;
  bool ok = true;
  aci_matrix_load(x, aci_matrix_offset(x, x->ndim - 2, x->shape, index), job->turned, a);
  for (int64_t i = 0; i < m * n; i++) {
    ok = ok && isfinite(a[i]);
    most = fabs(a[i]) > most ? fabs(a[i]) : most;
  }
  for (int64_t i = 0; i < m * n && most > 0; i++) a[i] /= most; /* so that no square overflows */
  ok = ok && factors(job, team, a, u, s, v, s + n);
  for (int64_t i = 0; i < m * n + n * n && !ok; i++) u[i] = NAN; /* and v, which follows */
  for (int64_t i = 0; i < n; i++) s[i] = ok ? s[i] * most : NAN;
  aci_matrix_store(job->s, index, n, 1, s, n, false);
  if (job->turned) { /* x^T = u s v^T, so that x = v s u^T */
    aci_matrix_store(job->u, index, n, n, v, n, false);
    aci_matrix_store(job->vh, index, m, n, u, m, true);
  } else {
    aci_matrix_store(job->u, index, m, n, u, m, false);
    aci_matrix_store(job->vh, index, n, n, v, n, true);
  }
  return AC_OK;
}

static ac_status svd_cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, X);
  const int64_t rows = x->shape[x->ndim - 2], columns = x->shape[x->ndim - 1];
  svd_job j = {.x = x, .u = f->out[0], .s = f->out[1], .vh = f->out[2], .turned = rows < columns};
  j.m = j.turned ? columns : rows;
  j.n = j.turned ? rows : columns;
  if (x->numel == 0) return AC_OK;
  j.lapack = aci_lapack(j.n);
  return aci_matrices(f, aci_matrix_count(x), doubles(&j), 10.0 * (double)(j.m * j.n) * j.n, one,
                      &j, e);
}
ACI_ON_HOST(svd_cpu)

static ac_tensor *mT(ac_expr *x, ac_tensor *t) { return x_transpose(x, t, -2, -1); }
static ac_tensor *minus(ac_expr *x, ac_tensor *a, ac_tensor *b) {
  return x_sub(x, T(a), T(b), aci_float(1));
}
static ac_tensor *plus(ac_expr *x, ac_tensor *a, ac_tensor *b) {
  return a == NULL ? b : x_add(x, T(a), T(b), aci_float(1));
}

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *u = g->out[0], *s = g->out[1], *vh = g->out[2], *du = g->dout[0], *ds = g->dout[1],
            *dvh = g->dout[2], *inner = NULL, *dx = NULL;
  const int nd = vh->ndim;
  const int64_t k = vh->shape[nd - 2];
  ac_tensor *row = x_unsqueeze(x, s, -2), *column = x_unsqueeze(x, s, -1);
  ac_tensor *gap = minus(x, x_square(x, row), x_square(x, column)); /* E, zeros on the diagonal */
  ac_tensor *eye = x_ones_like(x, gap, NULL, NULL);
  eye = minus(x, x_tril(x, eye, 0), x_tril(x, eye, -1));
  gap = plus(x, gap, eye);
  if (ds != NULL) inner = x_mul(x, T(eye), T(x_unsqueeze(x, ds, -1)));
  if (du != NULL) {
    ac_tensor *t = x_matmul(x, mT(x, u), du);
    inner = plus(x, inner, x_mul(x, T(x_div(x, T(minus(x, t, mT(x, t))), T(gap))), T(row)));
  }
  if (dvh != NULL) {
    ac_tensor *t = x_matmul(x, vh, mT(x, dvh));
    inner = plus(x, inner, x_mul(x, T(x_div(x, T(minus(x, t, mT(x, t))), T(gap))), T(column)));
  }
  if (inner == NULL) return;
  dx = x_matmul(x, u, x_matmul(x, inner, vh));
  if (du != NULL && u->shape[nd - 2] > k) {
    ac_tensor *t = x_div(x, T(du), T(row));
    t = minus(x, t, x_matmul(x, u, x_matmul(x, mT(x, u), t)));
    dx = plus(x, dx, x_matmul(x, t, vh));
  }
  if (dvh != NULL && vh->shape[nd - 1] > k) {
    ac_tensor *t = x_div(x, T(dvh), T(column));
    t = minus(x, t, x_matmul(x, x_matmul(x, t, mT(x, vh)), vh));
    dx = plus(x, dx, x_matmul(x, u, t));
  }
  ac_grad_set(g, X, ac_grad_reduce_to(g, X, dx));
}

AC_OP(svd, .sig = "svd(x: tensor) -> (u: tensor, s: tensor, vh: tensor)", .shape = shape,
      .cpu = cpu, .grad = grad, .save = AC_SAVE_OUT(0) | AC_SAVE_OUT(1) | AC_SAVE_OUT(2),
      .by_vtable = true);
