/* view: the same elements under another shape, without copying. One extent may be -1.
   x (any shape whose memory allows it), shape -> view of x (shape).
   gradient: dx = dy in the shape of x.
   example: accel.arange(6):view(3, 2) --> { { 0, 1 }, { 2, 3 }, { 4, 5 } } */
#include "ops/index/index.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int n = f->args[1].n;
  int64_t s[AC_MAX_DIMS], st[AC_MAX_DIMS];
  char a[128], b[128];
  AC_TRY(aci_infer_shape(x, f->args[1].ints, n, s, e));
  if (!aci_view_strides(x, n, s, st))
    return AC_FAIL(
        e, SHAPE,
        "the memory of a tensor of shape %s and strides %s cannot be viewed in the shape asked "
        "for; use reshape",
        aci_shape_str(x->ndim, x->shape, a, sizeof a),
        aci_shape_str(x->ndim, x->stride, b, sizeof b));
  return ac_frame_view(f, 0, n, s, st, x->offset, e);
}

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_reshape(&g->x, g->dout[0], ac_grad_shape(g, 0, 0), ac_grad_ndim(g, 0, 0)));
}

AC_OP(view, .sig = "view(x: tensor, shape: shape) -> view(x)", .shape = shape, .grad = grad);
