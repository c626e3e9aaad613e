/* as_strided: a view of x's storage with any shape and strides, in elements. storage_offset counts elements of the
   storage from 0, and is x's own by default.
   x (any shape), size, stride (as many as size) -> view of x's storage (size)
   gradient: dx = dy added at the positions that its elements came from. x must be contiguous, and the view inside of it.
   example: accel.arange(4):as_strided({ 3, 2 }, { 1, 1 }) --> { { 0, 1 }, { 1, 2 }, { 2, 3 } } */
#include "ops/core/ctx_impl.h"
#include "ops/index/strided_positions.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  const ac_value *size = &f->args[1], *stride = &f->args[2];
  const int64_t start = ARG_NONE(f, 3) ? x->offset : ARG_I(f, 3);
  const int64_t room = (int64_t)(ac_storage_bytes(x->storage) / aci_dsize((ac_dtype)x->dtype));
  int64_t last = start;
  bool ok = start >= 0, empty = false;
  char a[128], b[128];
  if (size->n != stride->n || size->n > AC_MAX_DIMS)
    return AC_FAIL(e, SHAPE, "%d extents and %d strides; give one stride for each dim", size->n,
                   stride->n);
  for (int d = 0; ok && d < size->n; d++) {
    ok = size->ints[d] >= 0 && stride->ints[d] >= 0;
    empty |= size->ints[d] == 0;
  }
  for (int d = 0; ok && !empty && d < size->n; d++) {
    const int64_t more = size->ints[d] - 1, step = stride->ints[d];
    ok = more == 0 || step == 0 || (step < room && more <= room / step);
    if (ok) last += more * step;
  }
  if (!ok || (!empty && last >= room))
    return AC_FAIL(
        e, SHAPE,
        "a view of shape %s and strides %s from element %lld on leaves a storage of %lld elements",
        aci_shape_str(size->n, size->ints, a, sizeof a),
        aci_shape_str(stride->n, stride->ints, b, sizeof b), (long long)start, (long long)room);
  if (f->ctx->grad_enabled && aci_requires_grad(x) && !empty &&
      (!aci_is_contiguous(x) || (x->offset != 0 && !ARG_NONE(f, 3)) || start < x->offset ||
       last >= x->offset + x->numel))
    return AC_FAIL(e, GRAD,
                   "x requires gradients, and is not contiguous or the view leaves it; take the "
                   "view of x:contiguous()");
  return ac_frame_view(f, 0, size->n, size->ints, stride->ints, start, e);
}

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  const int64_t row = -1, *s = ac_grad_shape(g, 0, 0);
  const int nd = ac_grad_ndim(g, 0, 0);
  int64_t n = 1;
  for (int d = 0; d < nd; d++) n *= s[d];
  ac_tensor *dy = g->dout[0],
            *at = aci_strided_positions(x, dy, g->args[2].ints, ARG_NONE(g, 3) ? 0 : ARG_I(g, 3));
  ac_tensor *dx = x_index_add(x, aci_zeros_for(x, dy, 1, &n), 0, x_reshape(x, at, &row, 1),
                              x_reshape(x, dy, &row, 1), aci_float(1));
  ac_grad_set(g, 0, x_reshape(x, dx, s, nd));
}

AC_OP(as_strided,
      .sig = "as_strided(x: tensor, size: shape, stride: ints, storage_offset: int?) -> view(x)",
      .shape = shape, .grad = grad, .inplace = true);
