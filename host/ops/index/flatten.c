/* flatten: dims start_dim to end_dim of x as one. A view if the memory allows it.
   x (a, b, c) -> y (a, b * c)
   A tensor of rank 0 becomes one of rank 1.          gradient: through reshape.
   example: accel.tensor({ { 1, 2 }, { 3, 4 } }):flatten() --> { 1, 2, 3, 4 }
   example: accel.zeros(2, 3, 4):flatten(2).shape --> { 2, 12 } */
#include "ops/core/ctx_impl.h"
#include "ops/index/index.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  const ac_tensor *t = a[0].tensor;
  int nd = t->ndim > 0 ? t->ndim : 1;
  int64_t first = a[1].i < 0 ? a[1].i + nd : a[1].i, last = a[2].i < 0 ? a[2].i + nd : a[2].i;
  char s[128];
  if (first < 0 || first >= nd || last < 0 || last >= nd || first > last) {
    const int base = x->ctx->index_base;
    x->st =
        AC_FAIL(x->e, INDEX,
                "start_dim %lld and end_dim %lld do not name a range of the %d dims of shape %s",
                (long long)(a[1].i < 0 ? a[1].i : a[1].i + base),
                (long long)(a[2].i < 0 ? a[2].i : a[2].i + base), t->ndim,
                aci_shape_str(t->ndim, t->shape, s, sizeof s));
    return 0;
  }
  int64_t shape[AC_MAX_DIMS], joined = 1;
  int n = 0;
  for (int d = 0; d < t->ndim; d++) {
    if (d < first || d > last) {
      shape[n++] = t->shape[d];
      continue;
    }
    joined *= t->shape[d];
    if (d == last) shape[n++] = joined;
  }
  if (t->ndim == 0) shape[n++] = 1;
  out[0] = x_reshape(x, a[0].tensor, shape, n);
  return 1;
}

AC_OP(flatten, .sig = "flatten(x: tensor, start_dim: dim = 0, end_dim: dim = -1) -> tensor",
      .composed = composed, .alias = "ravel", .on_complex = aci_complex_composed);
