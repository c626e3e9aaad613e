/* alias: another tensor on the same elements, which is a node of its own in the graph. Used by the
   engine to tell an input's own gradient
   from gradients through other inputs.          x (any shape) -> view of x.          gradient: dx =
   dy. */
#include "ops/core/op.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  return ac_frame_view(f, 0, x->ndim, x->shape, x->stride, x->offset, e);
}

static void grad(ac_grad *g) { ac_grad_set(g, 0, g->dout[0]); }

AC_OP(alias, .sig = "alias(x: tensor) -> view(x)", .shape = shape, .grad = grad, .hidden = true);
