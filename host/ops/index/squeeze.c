/* squeeze: x without its dims of extent 1: all of them, or those named (others stay).          x -> view of x
   gradient: dx = dy in the shape of x.
   example: accel.zeros(1, 3, 1):squeeze().shape --> { 3 }
   example: accel.zeros(1, 3, 1):squeeze(1).shape --> { 3, 1 } */
#include "ops/core/op.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  uint32_t mask;
  int n = 0;
  int64_t s[AC_MAX_DIMS], st[AC_MAX_DIMS];
  AC_TRY(ac_frame_dims(f, 1, x->ndim, &mask, e));
  for (int d = 0; d < x->ndim; d++) {
    if ((mask >> d & 1) && x->shape[d] == 1) continue;
    s[n] = x->shape[d];
    st[n++] = x->stride[d];
  }
  return ac_frame_view(f, 0, n, s, st, x->offset, e);
}

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_reshape(&g->x, g->dout[0], ac_grad_shape(g, 0, 0), ac_grad_ndim(g, 0, 0)));
}

AC_OP(squeeze, .sig = "squeeze(x: tensor, dim: dims?) -> view(x)", .shape = shape, .grad = grad,
      .inplace = true);
