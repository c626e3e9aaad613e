/* narrow: `length` elements of x along dim, from start on.
   x (..., n, ...) -> view of x (..., length, ...)
   gradient: dx = dy in that range, zeros elsewhere (slice_backward).
   example: accel.arange(5):narrow(1, 2, 3) --> { 1, 2, 3 }
   example: accel.tensor({ { 1, 2 }, { 3, 4 } }):narrow(2, -1, 1) --> { { 2 }, { 4 } } */
#include "ops/core/ctx_impl.h"
#include "ops/index/index.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int d;
  char a[128];
  int64_t s[AC_MAX_DIMS], start = ARG_I(f, 2), length = ARG_I(f, 3);
  if (x->ndim == 0) return AC_FAIL(e, SHAPE, "a tensor of rank 0 has no dim to narrow");
  AC_TRY(ac_frame_dim(f, 1, x->ndim, &d, e));
  int64_t n = x->shape[d];
  if (start < 0) start += n;
  if (start < 0 || start > n)
    return AC_FAIL(e, INDEX, "start %lld is out of range: dim %lld of %s has %lld positions",
                   (long long)ac_frame_show(f, ARG_I(f, 2)), (long long)ac_frame_show(f, d),
                   aci_shape_str(x->ndim, x->shape, a, sizeof a), (long long)n);
  if (length < 0 || length > n - start)
    return AC_FAIL(e, INDEX, "start %lld and length %lld reach beyond dim %lld of %s",
                   (long long)ac_frame_show(f, ARG_I(f, 2)), (long long)length,
                   (long long)ac_frame_show(f, d), aci_shape_str(x->ndim, x->shape, a, sizeof a));
  memcpy(s, x->shape, (size_t)x->ndim * 8);
  s[d] = length;
  return ac_frame_view(f, 0, x->ndim, s, x->stride, x->offset + start * x->stride[d], e);
}

static void grad(ac_grad *g) {
  int nd = ac_grad_ndim(g, 0, 0), d = aci_wrap_dim(ARG_I(g, 1), nd);
  const int64_t *s = ac_grad_shape(g, 0, 0);
  int64_t start = ARG_I(g, 2) < 0 ? ARG_I(g, 2) + s[d] : ARG_I(g, 2);
  ac_grad_set(g, 0, x_slice_backward(&g->x, &g->dout[0], 1, s, nd, d, &start, 1));
}

AC_OP(narrow, .sig = "narrow(x: tensor, dim: dim, start: pos, length: int) -> view(x)",
      .shape = shape, .grad = grad);
