/* mT: matrices transposed: the last two dims change places.          x (..., m, n) -> view of x (..., n, m)
   gradient: dx = dy transposed.
   example: accel.tensor({ { 1, 2 }, { 3, 4 } }):mT() --> { { 1, 3 }, { 2, 4 } } */
#include "ops/core/op.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  char a[128];
  const int n = x->ndim;
  if (n < 2)
    return AC_FAIL(e, SHAPE, "needs at least 2 dims, got shape %s",
                   aci_shape_str(n, x->shape, a, sizeof a));
  int64_t s[AC_MAX_DIMS], st[AC_MAX_DIMS];
  memcpy(s, x->shape, (size_t)n * 8);
  memcpy(st, x->stride, (size_t)n * 8);
  s[n - 2] = x->shape[n - 1];
  s[n - 1] = x->shape[n - 2];
  st[n - 2] = x->stride[n - 1];
  st[n - 1] = x->stride[n - 2];
  return ac_frame_view(f, 0, n, s, st, x->offset, e);
}

static void grad(ac_grad *g) { ac_grad_set(g, 0, x_transpose(&g->x, g->dout[0], -2, -1)); }

AC_OP(mT, .sig = "mT(x: tensor) -> view(x)", .shape = shape, .grad = grad);
