/* svd: x = u diag(s) vh with orthonormal columns in u, orthonormal rows in vh and s descending, by one-sided Jacobi
   rotations (Hestenes). Signs of the pairs of columns and rows are free, as are the vectors of equal or zero values.
   x (..., m, n), k = min(m, n) -> u (..., m, k), s (..., k), vh (..., k, n). Dtypes: floats, computed in f64. NaN and
   infinity give NaN. gradient: none.
   example: local u, s, vh = accel.tensor({ { 0.0, 2.0 }, { 3.0, 0.0 } }):svd() return s --> { 3, 2 } */
#include <math.h>
#include <stdatomic.h>

#include "ops/index/index.h"
#include "ops/core/on_host.h"
#include "ops/reduce/slots.h"

enum { X, SWEEPS = 60 };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, X);
  const int nd = x->ndim;
  int64_t u[AC_MAX_DIMS], s[AC_MAX_DIMS], v[AC_MAX_DIMS];
  char a[128];
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "needs a float tensor, got %s", ac_dtype_name((ac_dtype)x->dtype));
  if (nd < 2)
    return AC_FAIL(e, SHAPE, "needs a matrix or a batch of them, got shape %s",
                   aci_shape_str(nd, x->shape, a, sizeof a));
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
  ac_team *team; /* of the rotations. NULL while batches share the threads */
  aci_slots *slots;
  int64_t m, n; /* of the tall matrix: x, or x transposed */
  bool turned;
} svd_job;

static int64_t doubles(const svd_job *j) { return 2 * (j->m * j->n + j->n * j->n + j->n); }

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

static void one(const svd_job *job, int64_t index, double *scratch) {
  const ac_tensor *x = job->x;
  const ac_dtype dt = (ac_dtype)x->dtype;
  const int64_t es = (int64_t)aci_dsize(dt), m = job->m, n = job->n;
  double *a = scratch, *turns = a + m * n, *u = turns + n * n, *v = u + m * n, *s = v + n * n,
         *length = s + n;
  int64_t off = 0, rest = index;
  for (int d = x->ndim - 3; d >= 0; d--) {
    off += rest % x->shape[d] * x->stride[d];
    rest /= x->shape[d];
  }
  const char *src = (const char *)aci_data(x) + off * es;
  const int64_t rows = x->stride[x->ndim - 2], columns = x->stride[x->ndim - 1];
  for (int64_t c = 0; c < n; c++)
    aci_load(ACI_C_F64, a + c * m, dt, src + c * (job->turned ? rows : columns) * es,
             job->turned ? columns : rows, m);
  double most = 0;
  bool finite = true;
  for (int64_t i = 0; i < m * n; i++) {
    finite = finite && isfinite(a[i]);
    most = fabs(a[i]) > most ? fabs(a[i]) : most;
  }
  for (int64_t i = 0; i < m * n && most > 0; i++)
    a[i] = finite ? a[i] / most : NAN; /* so that no square overflows */
  jacobi j = {.m = m, .n = n, .a = a, .v = turns};
  memset(turns, 0, (size_t)(n * n) * sizeof *turns);
  for (int64_t c = 0; c < n; c++) turns[c * n + c] = 1;
  for (int k = 0; k < SWEEPS && finite && n > 1; k++) {
    j.turned = false;
    sweep(&j, job->team);
    if (!j.turned) break;
  }
  char *pu = (char *)aci_data(job->u) + index * m * n * es,
       *ps = (char *)aci_data(job->s) + index * n * es,
       *pv = (char *)aci_data(job->vh) + index * n * n * es;
  if (job->turned) {
    pu = (char *)aci_data(job->u) + index * n * n * es;
    pv = (char *)aci_data(job->vh) + index * m * n * es;
  }
  if (!finite) {
    for (int64_t i = 0; i < m * n; i++) u[i] = NAN;
    for (int64_t i = 0; i < n * n; i++) v[i] = NAN;
    for (int64_t i = 0; i < n; i++) s[i] = NAN;
  } else {
    order(&j, u, v, s, length);
    for (int64_t i = 0; i < n; i++) s[i] *= most;
  }
  aci_store(ACI_C_F64, s, dt, ps, 1, n);
  for (int64_t c = 0; c < n; c++) { /* x = U S V^T, or x^T = U S V^T and so x = V S U^T */
    const double *left = job->turned ? v + c * n : u + c * m,
                 *right = job->turned ? u + c * m : v + c * n;
    aci_store(ACI_C_F64, left, dt, pu + c * es, n, job->turned ? n : m);
    aci_store(ACI_C_F64, right, dt, pv + c * (job->turned ? m : n) * es, 1, job->turned ? m : n);
  }
}

static void batches(void *arg, int64_t begin, int64_t end) {
  svd_job *j = arg;
  int slot = aci_slots_take(j->slots);
  for (int64_t i = begin; i < end; i++) one(j, i, (double *)(void *)aci_slots_at(j->slots, slot));
  aci_slots_give(j->slots, slot);
}

static ac_status svd_cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, X);
  aci_slots slots;
  svd_job j = {.x = x, .u = f->out[0], .s = f->out[1], .vh = f->out[2], .slots = &slots};
  j.m = x->shape[x->ndim - 2];
  j.n = x->shape[x->ndim - 1];
  j.turned = j.m < j.n;
  if (j.turned) {
    j.m = x->shape[x->ndim - 1];
    j.n = x->shape[x->ndim - 2];
  }
  if (x->numel == 0) return AC_OK;
  int64_t n_batch = 1;
  for (int d = 0; d < x->ndim - 2; d++) n_batch *= x->shape[d];
  AC_TRY(aci_slots_open(&slots, f, n_batch, (size_t)doubles(&j) * sizeof(double), e));
  if (n_batch == 1) {
    j.team = f->team;
    batches(&j, 0, 1);
  } else {
    ac_parallel_for(f->team, n_batch, 1 + 65536 / (doubles(&j) * j.n + 1), batches, &j);
  }
  aci_slots_close(&slots);
  return AC_OK;
}
ACI_ON_HOST(svd_cpu)

AC_OP(svd, .sig = "svd(x: tensor) -> (u: tensor, s: tensor, vh: tensor)", .shape = shape,
      .cpu = cpu, .nondiff = true, .by_vtable = true);
