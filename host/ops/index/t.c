/* t: a matrix transposed. Vectors and numbers stay unchanged.          x (m, n) -> view of x (n, m)
   gradient: dx = dy transposed.
   example: accel.tensor({ { 1, 2 }, { 3, 4 } }):t() --> { { 1, 3 }, { 2, 4 } } */
#include "ops/core/op.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  char a[128];
  if (x->ndim > 2)
    return AC_FAIL(e, SHAPE, "needs at most 2 dims, got shape %s; use transpose",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a));
  if (x->ndim < 2) return ac_frame_view(f, 0, x->ndim, x->shape, x->stride, x->offset, e);
  int64_t s[2] = {x->shape[1], x->shape[0]}, st[2] = {x->stride[1], x->stride[0]};
  return ac_frame_view(f, 0, 2, s, st, x->offset, e);
}

static void grad(ac_grad *g) { ac_grad_set(g, 0, x_t(&g->x, g->dout[0])); }

AC_OP(t, .sig = "t(x: tensor) -> view(x)", .shape = shape, .grad = grad, .inplace = true);
