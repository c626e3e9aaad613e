/* diag_embed: matrices with the last dim of x on their diagonal `offset` (positive: above the main one), zeros elsewhere. dim1
   and dim2 are the dims of the matrices in the result.
   x (..., n) -> y (..., n + |offset|, n + |offset|)
   gradient: dx = that diagonal of dy.
   example: accel.tensor { 1, 2 }:diag_embed() --> { { 1, 0 }, { 0, 2 } }
   example: accel.tensor { 1 }:diag_embed(-1) --> { { 0, 0 }, { 1, 0 } } */
#include "ops/index/index.h"

/* Row i of the diagonal and the one above it are m + 1 apart in memory: each element is followed by m zeros. */
static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor;
  const int64_t offset = a[1].i, k = offset < 0 ? -offset : offset;
  const int nd = t->ndim + 1;
  int64_t d1 = a[2].i, d2 = a[3].i, shape[AC_MAX_DIMS];
  if (t->ndim == 0 || nd > AC_MAX_DIMS) {
    x->st = AC_FAIL(x->e, SHAPE, "needs a tensor of 1 to %d dims", AC_MAX_DIMS - 1);
    return 0;
  }
  const int64_t n = t->shape[t->ndim - 1], m = n + k;
  ac_tensor *y = x_unsqueeze(x, t, -1);
  if (d1 < -nd || d1 >= nd || d2 < -nd || d2 >= nd) {
    x_transpose(x, y, d1, d2); /* reports the fault */
    return 0;
  }
  d1 = d1 < 0 ? d1 + nd : d1;
  d2 = d2 < 0 ? d2 + nd : d2;
  if (d1 == d2) {
    x->st = AC_FAIL(x->e, INVALID, "dim1 and dim2 must differ");
    return 0;
  }
  const int64_t zeros[2] = {0, m};
  const int64_t front = offset < 0 ? k * m : k;
  const int64_t edges[2] = {front, m * m - front - (n * (m + 1) - (n > 0 ? m : 0))};
  y = x_pad(x, y, zeros, 2, AC_PAD_MODE_CONSTANT, 0); /* (..., n, m + 1) */
  for (int i = 0; i < t->ndim - 1; i++) shape[i] = t->shape[i];
  shape[t->ndim - 1] = n * (m + 1);
  y = x_reshape(x, y, shape, t->ndim);
  if (n > 0) y = x_narrow(x, y, -1, 0, n * (m + 1) - m);
  y = x_pad(x, y, edges, 2, AC_PAD_MODE_CONSTANT, 0);
  shape[t->ndim - 1] = shape[t->ndim] = m;
  y = x_reshape(x, y, shape, nd);
  const int64_t from[2] = {nd - 2, nd - 1}, to[2] = {d1, d2};
  out[0] = x_movedim(x, y, from, 2, to, 2);
  return 1;
}

AC_OP(diag_embed,
      .sig = "diag_embed(x: tensor, offset: int = 0, dim1: dim = -2, dim2: dim = -1) -> tensor",
      .composed = composed, .on_complex = aci_complex_parts);
