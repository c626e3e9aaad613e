/* take_along_dim: the elements of x along dim at indices, as argsort and argmax with keepdim give them. Both are
   broadcast over the other dims, and negative indices count from the end. Without dim both are flattened.
   x (a, n, b), indices (a, m, b, from 0), dim 2nd -> y (a, m, b), y[i, j, k] = x[i, indices[i, j, k], k]
   gradient: dx = dy added to its source positions (as for gather).
   example: accel.tensor({ { 3, 1 }, { 2, 4 } }):take_along_dim(accel.tensor { { 1 }, { 0 } }, 2) --> { { 1 }, { 2 } }
   example: accel.tensor({ { 3, 1 }, { 2, 4 } }):take_along_dim(accel.tensor { 3, 0 }) --> { 4, 3 } */
#include "ops/index/index.h"

/* Positions from the end, -1 the last, as positions from 0. */
static ac_tensor *from_start(ac_expr *x, ac_tensor *at, int64_t n) {
  ac_tensor *wrapped = x_add(x, T(at), ac_operand_int(n), aci_float(1));
  return x_where(x, x_lt(x, T(at), ac_operand_int(0)), T(wrapped), T(at));
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor, *at = a[1].tensor;
  const int64_t row = -1;
  int64_t s[AC_MAX_DIMS], si[AC_MAX_DIMS];
  char p[128], q[128];
  if (a[2].kind == AC_T_NONE) {
    out[0] = x_gather(x, x_reshape(x, t, &row, 1), 0, x_reshape(x, at, &row, 1));
    return 1;
  }
  const int nd = t->ndim > 0 ? t->ndim : 1;
  const int64_t d = a[2].i < 0 ? a[2].i + nd : a[2].i;
  bool ok = t->ndim == at->ndim;
  if (ok && (d < 0 || d >= nd)) {
    x_sort(x, t, a[2].i, false, false, NULL); /* reports a fault of dim */
    return 0;
  }
  for (int i = 0; i < t->ndim && ok; i++) {
    const int64_t m = t->shape[i], n = at->shape[i];
    ok = i == d || m == n || m == 1 || n == 1;
    s[i] = i == d ? m : m == 1 ? n : m;
    si[i] = i == d ? n : s[i];
  }
  if (!ok) {
    x->st = AC_FAIL(x->e, SHAPE,
                    "x of shape %s and indices of shape %s do not broadcast; they need the same "
                    "rank, and equal extents or 1 except along dim",
                    aci_shape_str(t->ndim, t->shape, p, sizeof p),
                    aci_shape_str(at->ndim, at->shape, q, sizeof q));
    return 0;
  }
  at = from_start(x, at, t->ndim > 0 ? t->shape[d] : 1);
  out[0] = x_gather(x, x_expand(x, t, s, t->ndim), d, x_expand(x, at, si, t->ndim));
  return 1;
}

AC_OP(take_along_dim, .sig = "take_along_dim(x: tensor, indices: tensor, dim: dim?) -> tensor",
      .composed = composed, .on_complex = aci_complex_composed);
