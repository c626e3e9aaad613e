/* Areas between neighbouring points, for trapezoid and cumulative_trapezoid. */
#ifndef ACI_OPS_TRAPEZOID_H
#define ACI_OPS_TRAPEZOID_H
#include "ops/map/map.h"
#include "ops/reduce/composed.h"

/* The arguments are (y, x?, dx, dim). *d becomes the dim. An x of one dim lies along it. */
static inline ac_tensor *aci_trapezoids(ac_expr *ex, const ac_value *a, int64_t *d) {
  ac_tensor *y = a[0].tensor, *x = a[1].kind == AC_T_NONE ? NULL : a[1].tensor;
  const double step = a[2].kind == AC_T_SCALAR ? aci_scalar_f(a[2].scalar) : 1;
  *d = aci_composed_dim(ex, y, a[3].i);
  if (*d < 0) return NULL;
  if (y->ndim == 0) {
    ex->st = AC_FAIL(ex->e, SHAPE, "y has rank 0; it needs a dim of points");
    return NULL;
  }
  if (y->dtype == AC_BOOL || (x != NULL && x->dtype == AC_BOOL)) {
    ex->st = AC_FAIL(ex->e, DTYPE, "is not defined for bool; cast to a float dtype first");
    return NULL;
  }
  const int64_t n = y->shape[*d], m = n > 0 ? n - 1 : 0;
  if (x != NULL && x->ndim == 1) {
    int64_t shape[AC_MAX_DIMS];
    if (x->shape[0] != n) {
      ex->st = AC_FAIL(ex->e, SHAPE, "x has %lld points, y has %lld along dim",
                       (long long)x->shape[0], (long long)n);
      return NULL;
    }
    for (int i = 0; i < y->ndim; i++) shape[i] = i == *d ? n : 1;
    x = x_reshape(ex, x, shape, y->ndim);
  }
  if (n == 0) return x_mul(ex, T(x_narrow(ex, y, *d, 0, 0)), F(1));
  ac_tensor *both =
      x_add(ex, T(x_narrow(ex, y, *d, 0, m)), T(x_narrow(ex, y, *d, 1, m)), aci_float(1));
  if (x == NULL)
    return a[2].kind == AC_T_TENSOR ? x_mul(ex, T(x_mul(ex, T(both), F(0.5))), T(a[2].tensor))
                                    : x_mul(ex, T(both), F(step / 2));
  /* of the same dims from the end */
  const int64_t dx = *d + x->ndim - y->ndim;
  const int64_t k = dx >= 0 && x->shape[dx] > 1 ? x->shape[dx] - 1 : 0;
  if (k == 0 && m > 0) {
    ex->st = AC_FAIL(ex->e, SHAPE, "x has no distances along dim");
    return NULL;
  }
  ac_tensor *gap =
      x_sub(ex, T(x_narrow(ex, x, dx, 1, k)), T(x_narrow(ex, x, dx, 0, k)), aci_float(1));
  return x_mul(ex, T(x_mul(ex, T(both), T(gap))), F(0.5));
}

#endif
