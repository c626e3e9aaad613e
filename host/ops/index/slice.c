/* slice: the elements of x from position start to stop (inclusive) along dim, every step-th of them.
   x (..., n, ...) -> view of x (..., (stop - start) / step + 1, ...)
   Negative positions count from the end. Without stop the slice ends with the last element. step is positive. With
   stop one before start the slice is empty.
   gradient: dx = dy at its positions, zeros elsewhere.
   example: accel.arange(5):slice(1, 2, 4) --> { 1, 2, 3 }
   example: accel.tensor { { 1, 2, 3 }, { 4, 5, 6 } }:slice(2, { step = 2 }) --> { { 1, 3 }, { 4, 6 } } */
#include "ops/core/ctx_impl.h"
#include "ops/index/index_view.h"

/* The slice as a spec: the dims before it whole. */
static int spec_of(const int64_t *shape, int dim, int64_t start, int64_t stop, int64_t step,
                   int64_t *spec) {
  for (int d = 0; d < dim; d++) {
    spec[3 * d] = 0;
    spec[3 * d + 1] = shape[d];
    spec[3 * d + 2] = 1;
  }
  spec[3 * dim] = start;
  spec[3 * dim + 1] = stop < start ? 0 : (stop - start) / step + 1;
  spec[3 * dim + 2] = step;
  return 3 * (dim + 1);
}

static void range_of(const ac_value *args, int64_t n, int64_t *start, int64_t *stop) {
  *start = args[2].i < 0 ? args[2].i + n : args[2].i;
  *stop = args[3].kind == AC_T_NONE ? n - 1 : args[3].i < 0 ? args[3].i + n : args[3].i;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int64_t spec[3 * AC_MAX_DIMS], s[AC_MAX_DIMS], st[AC_MAX_DIMS], off, start, stop,
      step = ARG_I(f, 4);
  int d, nd;
  char a[128];
  if (x->ndim == 0) return AC_FAIL(e, SHAPE, "a tensor of rank 0 has no dim to slice");
  AC_TRY(ac_frame_dim(f, 1, x->ndim, &d, e));
  const int64_t n = x->shape[d];
  if (step < 1)
    return AC_FAIL(e, INVALID, "step must be at least 1, got %lld; flip turns a dim around",
                   (long long)step);
  range_of(f->args, n, &start, &stop);
  if (start < 0 || start > n || stop >= n || stop < start - 1)
    return AC_FAIL(e, INDEX,
                   "positions %lld to %lld are not in dim %lld of %s, which has %lld positions",
                   (long long)ac_frame_show(f, start), (long long)(stop + f->ctx->index_base),
                   (long long)ac_frame_show(f, d), aci_shape_str(x->ndim, x->shape, a, sizeof a),
                   (long long)n);
  ac_value v = {
      .kind = AC_T_INTS, .n = spec_of(x->shape, d, start, stop, step, spec), .ints = spec};
  AC_TRY(aci_view_geometry(x->ndim, x->shape, x->stride, &v, &nd, s, st, &off, e));
  return ac_frame_view(f, 0, nd, s, st, x->offset + off, e);
}

static void grad(ac_grad *g) {
  int nd = ac_grad_ndim(g, 0, 0), d = aci_wrap_dim(ARG_I(g, 1), nd);
  const int64_t *s = ac_grad_shape(g, 0, 0);
  int64_t spec[3 * AC_MAX_DIMS], start, stop;
  range_of(g->args, s[d], &start, &stop);
  int n = spec_of(s, d, start, stop, ARG_I(g, 4), spec);
  ac_grad_set(g, 0, x_index_view_backward(&g->x, g->dout[0], spec, n, s, nd));
}

AC_OP(slice,
      .sig = "slice(x: tensor, dim: dim, start: pos = 0, stop: pos?, step: int = 1) -> view(x)",
      .shape = shape, .grad = grad);
