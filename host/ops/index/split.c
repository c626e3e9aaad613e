/* split: x cut along dim into pieces of extent split_size (the last may be shorter), or into pieces of the
   extents listed.
   x (..., n, ...) -> views of x (..., n_i, ...).
   gradient: dx = the dys concatenated along dim, in one pass.
   example: accel.split(accel.arange(5), 2) --> { { 0, 1 }, { 2, 3 }, { 4 } }
   example: accel.split(accel.arange(5), { 1, 4 }) --> { { 0 }, { 1, 2, 3, 4 } } */
#include "ops/core/ctx_impl.h"
#include "ops/index/index.h"

/* The extents of the pieces. -1: too many, -2: a bad list. */
static int sizes(const ac_value *want, int64_t n, int64_t *size) {
  if (want->n != 1) {
    int64_t sum = 0;
    if (want->n > AC_MAX_RESULTS) return -1;
    for (int i = 0; i < want->n; i++) {
      if (want->ints[i] < 0 || want->ints[i] > n - sum) return -2;
      size[i] = want->ints[i];
      sum += size[i];
    }
    return sum == n ? want->n : -2;
  }
  int64_t step = want->ints[0];
  if (step < 0 || (step == 0 && n != 0)) return -2;
  int64_t count = step == 0 || n == 0 ? 1 : (n - 1) / step + 1;
  if (count > AC_MAX_RESULTS) return -1;
  for (int64_t i = 0; i < count; i++) size[i] = i < count - 1 ? step : n - step * (count - 1);
  return (int)count;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int d, n;
  int64_t size[AC_MAX_RESULTS];
  char a[128], b[128];
  if (x->ndim == 0) return AC_FAIL(e, SHAPE, "a tensor of rank 0 cannot be cut");
  AC_TRY(ac_frame_dim(f, 2, x->ndim, &d, e));
  n = sizes(&f->args[1], x->shape[d], size);
  if (n == -1) return AC_FAIL(e, INVALID, "more than %d pieces; use narrow", AC_MAX_RESULTS);
  if (n < 0)
    return AC_FAIL(e, SHAPE, "pieces of %s do not cut dim %lld of %s, which has %lld positions",
                   aci_shape_str(f->args[1].n, f->args[1].ints, a, sizeof a),
                   (long long)ac_frame_show(f, d), aci_shape_str(x->ndim, x->shape, b, sizeof b),
                   (long long)x->shape[d]);
  return aci_split_views(f, d, n, size, e);
}

static void grad(ac_grad *g) {
  int d = aci_wrap_dim(ARG_I(g, 2), ac_grad_ndim(g, 0, 0));
  int64_t size[AC_MAX_RESULTS];
  int n = sizes(&g->args[1], ac_grad_shape(g, 0, 0)[d], size);
  aci_split_grad(g, d, n, size);
}

AC_OP(split, .sig = "split(x: tensor, split_size: ints, dim: dim = 0) -> tensors", .shape = shape,
      .grad = grad, .alias = "split_with_sizes unsafe_split unsafe_split_with_sizes",
      .complex_as = AC_COMPLEX_NATIVE);
