/* Matrices of pairs: see pair_matrix.h. */
#include "ops/linalg/pair_matrix.h"

#include <math.h>

#include "ops/linalg/lapack.h"

enum { RUN = 64 };

ac_status aci_pair_matrix_check(const ac_tensor *x, bool square, ac_err *e) {
  const int nd = x->ndim;
  char text[128];
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "needs a float tensor, got %s", ac_dtype_name((ac_dtype)x->dtype));
  if (nd < 3 || x->shape[nd - 1] != 2 || (square && x->shape[nd - 2] != x->shape[nd - 3]))
    return AC_FAIL(e, SHAPE, "needs %smatrices of pairs, got shape %s", square ? "square " : "",
                   aci_shape_str(nd, x->shape, text, sizeof text));
  return AC_OK;
}

ac_status aci_pair_matrix_lapack(int64_t m, int64_t n, ac_err *e) {
  const int64_t least = m < n ? m : n, most = m < n ? n : m;
  if (most < 1 << 24 && aci_lapack_for(least)) return AC_OK;
  return AC_FAIL(e, UNSUPPORTED,
                 "needs LAPACK and fewer than 16384 rows or columns, got %lld and %lld; install "
                 "libopenblas0-pthread or liblapack3, see accel-run env",
                 (long long)m, (long long)n);
}

int64_t aci_pair_matrix_count(const ac_tensor *x) {
  int64_t n = 1;
  for (int d = 0; d < x->ndim - 3; d++) n *= x->shape[d];
  return n;
}

bool aci_pair_matrix_load(const ac_tensor *x, int64_t i, double *a) {
  const int row = x->ndim - 3;
  const int64_t m = x->shape[row], n = x->shape[row + 1],
                es = (int64_t)aci_dsize((ac_dtype)x->dtype);
  int64_t offset = 0;
  double run[RUN];
  bool ok = true;
  for (int d = row - 1; d >= 0; d--) {
    offset += i % x->shape[d] * x->stride[d];
    i /= x->shape[d];
  }
  for (int64_t c = 0; c < n; c++)
    for (int part = 0; part < 2; part++)
      for (int64_t r = 0; r < m; r += RUN) {
        const int64_t k = m - r < RUN ? m - r : RUN;
        const int64_t at =
            offset + r * x->stride[row] + c * x->stride[row + 1] + part * x->stride[row + 2];
        aci_load(ACI_C_F64, run, (ac_dtype)x->dtype, (const char *)aci_data(x) + at * es,
                 x->stride[row], k);
        for (int64_t j = 0; j < k; j++) {
          a[2 * (c * m + r + j) + part] = run[j];
          ok = ok && isfinite(run[j]);
        }
      }
  return ok;
}

void aci_pair_matrix_store(const ac_tensor *x, int64_t i, int64_t m, int64_t n, const double *a,
                           int64_t ld, int parts) {
  const ac_dtype dt = (ac_dtype)x->dtype;
  double run[RUN];
  char *to = (char *)aci_data(x) + i * m * n * parts * (int64_t)aci_dsize(dt);
  for (int64_t r = 0; r < m; r++)
    for (int64_t c = 0; c < n; c += RUN / 2) {
      const int64_t k = n - c < RUN / 2 ? n - c : RUN / 2;
      for (int64_t j = 0; j < k; j++)
        for (int part = 0; part < parts; part++)
          run[j * parts + part] = a[((c + j) * ld + r) * parts + part];
      aci_store(ACI_C_F64, run, dt, to + (r * n + c) * parts * (int64_t)aci_dsize(dt), 1,
                k * parts);
    }
}
