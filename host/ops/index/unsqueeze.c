/* unsqueeze: x with a new dim of extent 1 at dim (at most one after the last).
   x (n dims) -> view of x (n + 1 dims)
   gradient: dx = dy without it.
   example: accel.tensor({ 1, 2 }):unsqueeze(1) --> { { 1, 2 } }
   example: accel.tensor({ 1, 2 }):unsqueeze(-1) --> { { 1 }, { 2 } } */
#include "ops/index/index.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int d;
  int64_t s[AC_MAX_DIMS], st[AC_MAX_DIMS];
  if (x->ndim == AC_MAX_DIMS) return AC_FAIL(e, SHAPE, "a tensor has at most %d dims", AC_MAX_DIMS);
  AC_TRY(ac_frame_dim(f, 1, x->ndim + 1, &d, e));
  for (int i = 0, w = 0; i <= x->ndim; i++) {
    s[i] = i == d ? 1 : x->shape[w];
    st[i] = i == d ? (w < x->ndim ? x->shape[w] * x->stride[w] : 1) : x->stride[w];
    w += i != d;
  }
  return ac_frame_view(f, 0, x->ndim + 1, s, st, x->offset, e);
}

static void grad(ac_grad *g) {
  int64_t d = aci_wrap_dim(ARG_I(g, 1), ac_grad_ndim(g, 0, 0) + 1);
  ac_grad_set(g, 0, x_squeeze(&g->x, g->dout[0], &d, 1));
}

AC_OP(unsqueeze, .sig = "unsqueeze(x: tensor, dim: dim) -> view(x)", .shape = shape, .grad = grad,
      .inplace = true);
