/* linalg_eig: A V = V diag(w) for any square A: eigenvalues w and right eigenvectors of length 1 in the columns of V, whose
   largest element is real, in LAPACK's order. By LAPACK's dgeev, of complex A by zgeev; without the library it raises.
   Complex numbers are pairs of real and imaginary part in a further dim.
   A (..., n, n), or with pairs (..., n, n, 2) -> eigenvalues (..., n, 2), eigenvectors (..., n, n, 2). Dtypes: floats, computed
   in f64. NaN and infinity give NaN. The gradient is in stdlib/accel/linalg/general.lua, whose functions call this op. */
#include <math.h>

#include "ops/core/on_host.h"
#include "ops/linalg/lapack.h"
#include "ops/linalg/matrix.h"

enum { A, PAIRS };

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, A);
  const int nd = x->ndim - (ARG_B(f, PAIRS) ? 1 : 0);
  int64_t s[AC_MAX_DIMS];
  char text[128];
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "needs a float tensor, got %s", ac_dtype_name((ac_dtype)x->dtype));
  if (nd < 2 || x->shape[nd - 1] != x->shape[nd - 2] || (nd < x->ndim && x->shape[nd] != 2))
    return AC_FAIL(e, SHAPE, "needs square matrices, got shape %s",
                   aci_shape_str(x->ndim, x->shape, text, sizeof text));
  if (nd == AC_MAX_DIMS) return AC_FAIL(e, SHAPE, "a tensor has at most %d dims", AC_MAX_DIMS);
  memcpy(s, x->shape, (size_t)nd * 8);
  s[nd - 1] = 2;
  AC_TRY(ac_frame_out(f, (ac_dtype)x->dtype, nd, s, e));
  s[nd - 1] = s[nd - 2];
  s[nd] = 2;
  return ac_frame_out(f, (ac_dtype)x->dtype, nd + 1, s, e);
}

typedef struct job {
  const ac_tensor *x, *w, *v;
  int n_batch_dims;
  bool pairs;
} job;

/* The matrix i as columns, of pairs if it is complex. Returns whether it is finite. column: n numbers. */
static bool load(const job *j, int64_t i, double *a, double *column) {
  const ac_tensor *x = j->x;
  const int row = j->n_batch_dims, parts = j->pairs ? 2 : 1;
  const int64_t n = x->shape[row], es = (int64_t)aci_dsize((ac_dtype)x->dtype);
  int64_t offset = 0;
  bool ok = true;
  for (int d = row - 1; d >= 0; d--) {
    offset += i % x->shape[d] * x->stride[d];
    i /= x->shape[d];
  }
  for (int64_t c = 0; c < n; c++)
    for (int part = 0; part < parts; part++) {
      const int64_t at = offset + c * x->stride[row + 1] + (part ? x->stride[row + 2] : 0);
      aci_load(ACI_C_F64, column, (ac_dtype)x->dtype, (const char *)aci_data(x) + at * es,
               x->stride[row], n);
      for (int64_t r = 0; r < n; r++) {
        a[(c * n + r) * parts + part] = column[r];
        ok = ok && isfinite(column[r]);
      }
    }
  return ok;
}

static void store(const ac_tensor *to, int64_t at, const double *from, int64_t n) {
  const ac_dtype dt = (ac_dtype)to->dtype;
  aci_store(ACI_C_F64, from, dt, (char *)aci_data(to) + at * (int64_t)aci_dsize(dt), 1, n);
}

static ac_status one(const void *arg, int64_t i, double *a, ac_team *team, ac_err *e) {
  (void)team, (void)e;
  const job *j = arg;
  const int64_t n = j->x->shape[j->n_batch_dims];
  double *v = a + 2 * n * n, *w = v + 2 * n * n, *scratch = w + 2 * n;
  bool ok = load(j, i, a, scratch);
  if (ok) ok = (j->pairs ? aci_lapack_eig_complex : aci_lapack_eig)(n, a, w, v, scratch);
  for (int64_t k = 0; k < 2 * n * n + 2 * n && !ok; k++) v[k] = NAN; /* and w, which follows */
  for (int64_t r = 0; r < n; r++)
    for (int64_t c = 0; c < n; c++) { /* rows from columns */
      a[2 * (r * n + c)] = v[2 * (c * n + r)];
      a[2 * (r * n + c) + 1] = v[2 * (c * n + r) + 1];
    }
  store(j->w, i * 2 * n, w, 2 * n);
  store(j->v, i * 2 * n * n, a, 2 * n * n);
  return AC_OK;
}

static ac_status eig_cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, A);
  const bool pairs = ARG_B(f, PAIRS);
  const job j = {x, f->out[0], f->out[1], x->ndim - (pairs ? 3 : 2), pairs};
  const int64_t n = x->shape[j.n_batch_dims];
  int64_t count = 1;
  for (int d = 0; d < j.n_batch_dims; d++) count *= x->shape[d];
  if (n == 0 || count == 0) return AC_OK;
  if (!aci_lapack_for(n))
    return AC_FAIL(e, UNSUPPORTED,
                   "needs LAPACK and a matrix of fewer than 16384 rows, got %lld rows; install "
                   "libopenblas0-pthread or liblapack3, see accel-run env",
                   (long long)n);
  return aci_matrices(f, count, 4 * n * n + 2 * n + 70 * n, 25.0 * (double)(n * n) * n, one, &j, e);
}
ACI_ON_HOST(eig_cpu)

AC_OP(linalg_eig,
      .sig = "linalg_eig(A: tensor, pairs: bool = false) -> (eigenvalues: tensor, eigenvectors: "
             "tensor)",
      .shape = shape, .cpu = cpu, .by_vtable = true, .hidden = true);
