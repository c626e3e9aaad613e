/* select: the slice of x at one index along dim, without that dim.
   x (..., n, ...), 0 <= index < n -> view of x (..., ...)
   gradient: dx = dy at that index, zeros elsewhere (slice_backward).
   example: accel.tensor({ { 1, 2 }, { 3, 4 } }):select(1, -1) --> { 3, 4 } */
#include "ops/index/index.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int d;
  char a[128];
  int64_t s[AC_MAX_DIMS], st[AC_MAX_DIMS], i = ARG_I(f, 2);
  if (x->ndim == 0) return AC_FAIL(e, SHAPE, "a tensor of rank 0 has no dim to select from");
  AC_TRY(ac_frame_dim(f, 1, x->ndim, &d, e));
  if (i < 0) i += x->shape[d];
  if (i < 0 || i >= x->shape[d])
    return AC_FAIL(e, INDEX, "index %lld is out of range: dim %lld of %s has %lld positions",
                   (long long)ac_frame_show(f, ARG_I(f, 2)), (long long)ac_frame_show(f, d),
                   aci_shape_str(x->ndim, x->shape, a, sizeof a), (long long)x->shape[d]);
  for (int k = 0, w = 0; k < x->ndim; k++) {
    if (k == d) continue;
    s[w] = x->shape[k];
    st[w++] = x->stride[k];
  }
  return ac_frame_view(f, 0, x->ndim - 1, s, st, x->offset + i * x->stride[d], e);
}

static void grad(ac_grad *g) {
  int nd = ac_grad_ndim(g, 0, 0), d = aci_wrap_dim(ARG_I(g, 1), nd);
  const int64_t *s = ac_grad_shape(g, 0, 0);
  int64_t start = ARG_I(g, 2) < 0 ? ARG_I(g, 2) + s[d] : ARG_I(g, 2);
  ac_tensor *dy = x_unsqueeze(&g->x, g->dout[0], d);
  ac_grad_set(g, 0, x_slice_backward(&g->x, &dy, 1, s, nd, d, &start, 1));
}

AC_OP(select, .sig = "select(x: tensor, dim: dim, index: pos) -> view(x)", .shape = shape,
      .grad = grad);
