/* movedim: dims of x moved to other positions. The others keep their order.
   x (n dims), source and destination (as many dims each) -> view of x
   gradient: dx = dy with the dims moved back.
   example: accel.zeros(2, 3, 4):movedim(1, 3).shape --> { 3, 4, 2 }
   example: accel.tensor { { 1, 2 }, { 3, 4 } }:movedim({ 1, 2 }, { 2, 1 }) --> { { 1, 3 }, { 2, 4 } } */
#include "ops/index/index.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  const ac_value *from = &f->args[1], *to = &f->args[2];
  int64_t s[AC_MAX_DIMS], st[AC_MAX_DIMS];
  int order[AC_MAX_DIMS];
  uint32_t taken, filled;
  AC_TRY(ac_frame_dims(f, 1, x->ndim, &taken, e));
  AC_TRY(ac_frame_dims(f, 2, x->ndim, &filled, e));
  if (from->n != to->n)
    return AC_FAIL(e, INVALID, "%d dims are moved to %d positions", from->n, to->n);
  for (int d = 0, k = 0; d < x->ndim; d++) {
    if (filled >> d & 1) continue;
    while (taken >> k & 1) k++;
    order[d] = k++;
  }
  for (int i = 0; i < from->n && x->ndim > 0; i++)
    order[aci_wrap_dim(to->ints[i], x->ndim)] = aci_wrap_dim(from->ints[i], x->ndim);
  for (int d = 0; d < x->ndim; d++) {
    s[d] = x->shape[order[d]];
    st[d] = x->stride[order[d]];
  }
  return ac_frame_view(f, 0, x->ndim, s, st, x->offset, e);
}

static void grad(ac_grad *g) {
  const ac_value *from = &g->args[1], *to = &g->args[2];
  ac_grad_set(g, 0, x_movedim(&g->x, g->dout[0], to->ints, to->n, from->ints, from->n));
}

AC_OP(movedim, .sig = "movedim(x: tensor, source: dims, destination: dims) -> view(x)",
      .shape = shape, .grad = grad, .alias = "moveaxis");
