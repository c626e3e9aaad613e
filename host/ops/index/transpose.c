/* transpose: two dims of x exchanged.          x (n dims), dim0, dim1 -> view of x.
   gradient: dx = dy transposed back.
   example: accel.zeros(2, 3, 4):transpose(1, -1).shape --> { 4, 3, 2 } */
#include "ops/core/op.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int i, j;
  int64_t s[AC_MAX_DIMS], st[AC_MAX_DIMS];
  AC_TRY(ac_frame_dim(f, 1, x->ndim, &i, e));
  AC_TRY(ac_frame_dim(f, 2, x->ndim, &j, e));
  memcpy(s, x->shape, (size_t)x->ndim * 8);
  memcpy(st, x->stride, (size_t)x->ndim * 8);
  if (x->ndim > 0) {
    s[i] = x->shape[j];
    s[j] = x->shape[i];
    st[i] = x->stride[j];
    st[j] = x->stride[i];
  }
  return ac_frame_view(f, 0, x->ndim, s, st, x->offset, e);
}

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_transpose(&g->x, g->dout[0], ARG_I(g, 1), ARG_I(g, 2)));
}

AC_OP(transpose, .sig = "transpose(x: tensor, dim0: dim, dim1: dim) -> view(x)", .shape = shape,
      .grad = grad, .alias = "swapaxes swapdims", .inplace = true);
