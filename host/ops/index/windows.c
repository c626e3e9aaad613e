/* windows: all windows of `size` neighbours along dim, each `step` after the one before it. It is the method x:unfold(dim, size, step).
   x (..., n, ...) -> view of x (..., (n - size) / step + 1, ..., size)
   gradient: dx = dy added at the positions that its elements came from.
   example: accel.arange(5):unfold(1, 3, 2) --> { { 0, 1, 2 }, { 2, 3, 4 } } */
#include "ops/core/ctx_impl.h"
#include "ops/index/index.h"
#include "ops/index/strided_positions.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  const int64_t size = ARG_I(f, 2), step = ARG_I(f, 3);
  int64_t s[AC_MAX_DIMS], st[AC_MAX_DIMS];
  char a[128];
  int d = 0;
  if (x->ndim >= AC_MAX_DIMS) return AC_FAIL(e, SHAPE, "more than %d dims", AC_MAX_DIMS);
  AC_TRY(ac_frame_dim(f, 1, x->ndim, &d, e));
  const int64_t n = x->ndim > 0 ? x->shape[d] : 1, along = x->ndim > 0 ? x->stride[d] : 1;
  if (size < 0 || size > n || step < 1)
    return AC_FAIL(e, SHAPE,
                   "windows of %lld elements with step %lld do not fit dim %lld of %s: size must "
                   "be between 0 and %lld, step at least 1",
                   (long long)size, (long long)step, (long long)ac_frame_show(f, d),
                   aci_shape_str(x->ndim, x->shape, a, sizeof a), (long long)n);
  memcpy(s, x->shape, (size_t)x->ndim * sizeof *s);
  memcpy(st, x->stride, (size_t)x->ndim * sizeof *st);
  if (x->ndim > 0) {
    s[d] = (n - size) / step + 1;
    st[d] = along * step;
  }
  s[x->ndim] = size;
  st[x->ndim] = along;
  return ac_frame_view(f, 0, x->ndim + 1, s, st, x->offset, e);
}

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  const int nd = ac_grad_ndim(g, 0, 0), d = aci_wrap_dim(ARG_I(g, 1), nd > 0 ? nd : 1);
  const int64_t *s = ac_grad_shape(g, 0, 0), row = -1, size = ARG_I(g, 2), step = ARG_I(g, 3);
  if (nd == 0) {
    ac_grad_set(g, 0, x_reshape(x, g->dout[0], s, 0));
    return;
  }
  /* windows and their elements next to each other, as one dim */
  const int64_t from = -1, to = d + 1, n = (s[d] - size) / step + 1, both[2] = {n, size},
                steps[2] = {step, 1};
  int64_t flat[AC_MAX_DIMS];
  memcpy(flat, s, (size_t)nd * sizeof *flat);
  flat[d] = n * size;
  ac_tensor *dy = x_reshape(x, x_movedim(x, g->dout[0], &from, 1, &to, 1), flat, nd);
  ac_tensor *at = aci_strided_positions(x, aci_zeros_for(x, dy, 2, both), steps, 0);
  ac_grad_set(
      g, 0,
      x_index_add(x, aci_zeros_for(x, dy, nd, s), d, x_reshape(x, at, &row, 1), dy, aci_float(1)));
}

AC_OP(windows, .sig = "windows(x: tensor, dim: dim, size: int, step: int) -> view(x)",
      .shape = shape, .grad = grad, .hidden = true);
