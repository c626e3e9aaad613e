/* kthvalue: the k-th smallest element along dim, counted from 1, and its index (from 0, the first of equal ones). NaN is larger
   than every number.
   x (any shape), k (1 .. the extent of dim) -> values, indices (without dim, or 1 with keepdim)
   gradient: dx = dvalues at indices, 0 elsewhere.
   example: accel.tensor { 4, 1, 3, 2 }:kthvalue(2) --> 2, 3
   example: accel.tensor { { 1, 5, 3 }, { 6, 2, 4 } }:kthvalue(3, 2) --> { 5, 6 }, { 1, 0 } */
#include "ops/reduce/composed.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor, *at = NULL;
  const int64_t d = aci_composed_dim(x, t, a[2].i), k = a[1].i;
  if (d < 0) return 0;
  const int64_t n = t->ndim > 0 ? t->shape[d] : 1;
  if (k < 1 || k > n) {
    x->st = AC_FAIL(x->e, INVALID, "k is %lld, dim has %lld elements", (long long)k, (long long)n);
    return 0;
  }
  ac_tensor *values = x_sort(x, t, d, false, true, &at);
  if (t->ndim > 0) {
    values = x_narrow(x, values, d, k - 1, 1);
    at = x_narrow(x, at, d, k - 1, 1);
    if (!a[3].b) {
      values = x_squeeze(x, values, &d, 1);
      at = x_squeeze(x, at, &d, 1);
    }
  }
  out[0] = x_contiguous(x, values);
  out[1] = x_contiguous(x, at);
  return 2;
}

AC_OP(kthvalue,
      .sig =
          "kthvalue(x: tensor, k: int, dim: dim = -1, keepdim: bool = false) -> (values: tensor, "
          "indices: tensor)",
      .composed = composed);
