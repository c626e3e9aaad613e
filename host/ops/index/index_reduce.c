/* index_reduce: x with the slices of source along dim joined to the slices of x that index names: their product, mean, largest or
   smallest one, together with the slice of x unless include_self is false.
   x (a, n, b), dim 2, index (m), source (a, m, b) -> y (shape of x)
   gradient: as for scatter_reduce.
   example: accel.ones(3):index_reduce(1, accel.tensor { 0, 2, 0 }, accel.tensor { 2.0, 5, 3 }, "prod") --> { 6, 1, 5 } */
#include "ops/core/op.h"

enum { PROD, MEAN, AMAX, AMIN };

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor, *index = a[2].tensor, *src = a[3].tensor;
  static const int reduce[] = {[PROD] = AC_SCATTER_REDUCE_REDUCE_PROD,
                               [MEAN] = AC_SCATTER_REDUCE_REDUCE_MEAN,
                               [AMAX] = AC_SCATTER_REDUCE_REDUCE_AMAX,
                               [AMIN] = AC_SCATTER_REDUCE_REDUCE_AMIN};
  const int n = t->ndim > 0 ? t->ndim : 1;
  const int64_t d = a[1].i < 0 ? a[1].i + n : a[1].i;
  int64_t shape[AC_MAX_DIMS], line[AC_MAX_DIMS];
  bool fits = d >= 0 && d < n && index->ndim <= 1 && src->ndim == t->ndim;
  for (int i = 0; fits && i < t->ndim; i++) {
    line[i] = i == d ? index->numel : 1;
    shape[i] = i == d ? index->numel : t->shape[i];
    fits = src->shape[i] == shape[i];
  }
  char p[128], q[128], r[128];
  if (!fits) {
    x->st = AC_FAIL(
        x->e, SHAPE,
        "x is %s, index %s and source %s; source must be as x with as many slices along dim as index has",
        aci_shape_str(t->ndim, t->shape, p, sizeof p),
        aci_shape_str(index->ndim, index->shape, q, sizeof q),
        aci_shape_str(src->ndim, src->shape, r, sizeof r));
    return 0;
  }
  index = x_expand(x, x_reshape(x, index, line, t->ndim), shape, t->ndim);
  out[0] = x_scatter_reduce(x, t, d, index, src, reduce[a[4].i], a[5].b);
  return 1;
}

AC_OP(index_reduce,
      .sig = "index_reduce(x: tensor, dim: dim, index: tensor, source: tensor, "
             "reduce: enum(prod|mean|amax|amin), include_self: bool = true) -> tensor",
      .composed = composed);
