/* chunk: x cut along dim into at most `chunks` pieces of equal extent (the last may be shorter).
   x (..., n, ...) -> views of x (..., ceil(n / chunks), ...).
   gradient: dx = the dys concatenated along dim, in one pass.
   example: accel.chunk(accel.arange(5), 2) --> { { 0, 1, 2 }, { 3, 4 } } */
#include "ops/index/index.h"

static int sizes(int64_t chunks, int64_t n, int64_t *size) {
  if (chunks > AC_MAX_RESULTS && n > AC_MAX_RESULTS) return -1;
  if (n == 0) {
    if (chunks > AC_MAX_RESULTS) return -1;
    memset(size, 0, (size_t)chunks * 8);
    return (int)chunks;
  }
  if (chunks > n) chunks = n;
  int64_t step = (n - 1) / chunks + 1, count = (n - 1) / step + 1;
  if (count > AC_MAX_RESULTS) return -1;
  for (int64_t i = 0; i < count; i++) size[i] = i < count - 1 ? step : n - step * (count - 1);
  return (int)count;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int d, n;
  int64_t size[AC_MAX_RESULTS];
  if (x->ndim == 0) return AC_FAIL(e, SHAPE, "a tensor of rank 0 cannot be cut");
  if (ARG_I(f, 1) < 1)
    return AC_FAIL(e, INVALID, "chunks must be at least 1, got %lld", (long long)ARG_I(f, 1));
  AC_TRY(ac_frame_dim(f, 2, x->ndim, &d, e));
  n = sizes(ARG_I(f, 1), x->shape[d], size);
  if (n < 0) return AC_FAIL(e, INVALID, "more than %d pieces; use narrow", AC_MAX_RESULTS);
  return aci_split_views(f, d, n, size, e);
}

static void grad(ac_grad *g) {
  int d = aci_wrap_dim(ARG_I(g, 2), ac_grad_ndim(g, 0, 0));
  int64_t size[AC_MAX_RESULTS];
  int n = sizes(ARG_I(g, 1), ac_grad_shape(g, 0, 0)[d], size);
  aci_split_grad(g, d, n, size);
}

AC_OP(chunk, .sig = "chunk(x: tensor, chunks: int, dim: dim = 0) -> tensors", .shape = shape,
      .grad = grad, .alias = "unsafe_chunk", .complex_as = AC_COMPLEX_NATIVE);
