/* diagonal: the diagonal of two dims of x, which become one last dim. offset > 0: above the main diagonal, < 0: below.
   x (..., m, ..., n, ...) -> view of x (..., k), y[..., i] = x[..., i - min(offset, 0), ..., i + max(offset, 0), ...]
   gradient: dx = dy on the diagonal, zeros elsewhere (diagonal_backward).
   example: accel.tensor { { 1, 2 }, { 3, 4 } }:diagonal() --> { 1, 4 }
   example: accel.tensor { { 1, 2, 3 }, { 4, 5, 6 } }:diagonal(1) --> { 2, 6 } */
#include "ops/index/index.h"
#include "ops/map/fill.h"

/* The view's geometry. If an offset leaves nothing, its extent is 0. Parameters: offset at `arg`,
 * then two dims. */
static ac_status geometry(ac_frame *f, int arg, int ndim, const int64_t *shape,
                          const int64_t *stride, int64_t *s, int64_t *st, int64_t *off, ac_err *e) {
  const int64_t offset = ARG_I(f, arg);
  int a, b, w = 0;
  char text[128];
  AC_TRY(ac_frame_dim(f, arg + 1, ndim, &a, e));
  AC_TRY(ac_frame_dim(f, arg + 2, ndim, &b, e));
  if (ndim < 2)
    return AC_FAIL(e, SHAPE, "needs at least 2 dims, got shape %s",
                   aci_shape_str(ndim, shape, text, sizeof text));
  if (a == b)
    return AC_FAIL(e, INVALID, "dim1 and dim2 are both %lld", (long long)ac_frame_show(f, a));
  for (int d = 0; d < ndim; d++) {
    if (d == a || d == b) continue;
    s[w] = shape[d];
    st[w++] = stride[d];
  }
  int64_t down = offset < 0 ? (offset < -shape[a] ? shape[a] : -offset) : 0;
  int64_t right = offset > 0 ? (offset > shape[b] ? shape[b] : offset) : 0;
  s[w] = shape[a] - down < shape[b] - right ? shape[a] - down : shape[b] - right;
  st[w] = stride[a] + stride[b];
  *off = s[w] > 0 ? down * stride[a] + right * stride[b] : 0;
  return AC_OK;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int64_t s[AC_MAX_DIMS], st[AC_MAX_DIMS], off = 0;
  AC_TRY(geometry(f, 1, x->ndim, x->shape, x->stride, s, st, &off, e));
  return ac_frame_view(f, 0, x->ndim - 1, s, st, x->offset + off, e);
}

static void grad(ac_grad *g) {
  const int nd = ac_grad_ndim(g, 0, 0);
  ac_grad_set(g, 0,
              x_diagonal_backward(&g->x, g->dout[0], ac_grad_shape(g, 0, 0), nd, ARG_I(g, 1),
                                  aci_wrap_dim(ARG_I(g, 2), nd), aci_wrap_dim(ARG_I(g, 3), nd)));
}

static ac_status shape_back(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = ARG_T(f, 0);
  const ac_value *want = &f->args[1];
  int64_t full[AC_MAX_DIMS], s[AC_MAX_DIMS], st[AC_MAX_DIMS], off = 0;
  AC_TRY(ac_frame_out(f, (ac_dtype)dy->dtype, want->n, want->ints, e));
  aci_contiguous_strides(want->n, want->ints, full);
  AC_TRY(geometry(f, 2, want->n, want->ints, full, s, st, &off, e));
  if (dy->ndim != want->n - 1 || memcmp(s, dy->shape, (size_t)dy->ndim * 8) != 0)
    return AC_FAIL(e, SHAPE, "dy does not have the shape of the diagonal");
  return AC_OK;
}

static ac_status cpu_back(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = ARG_T(f, 0), *dx = f->out[0];
  aci_range dst = {.dtype = (ac_dtype)dx->dtype},
            src = {.ptr = aci_data(dy), .dtype = (ac_dtype)dy->dtype};
  int64_t s[AC_MAX_DIMS], off = 0;
  if (dx->numel == 0) return AC_OK;
  AC_TRY(aci_fill(f, aci_float(0), e));
  AC_TRY(geometry(f, 2, dx->ndim, dx->shape, dx->stride, s, dst.stride, &off, e));
  dst.ptr = (char *)aci_data(dx) + off * (int64_t)aci_dsize(dst.dtype);
  memcpy(src.stride, dy->stride, (size_t)dy->ndim * 8);
  AC_TRY(aci_range_copy(f, dy->ndim, s, &dst, &src, e));
  return AC_OK;
}

static void grad_back(ac_grad *g) {
  ac_grad_set(g, 0, x_diagonal(&g->x, g->dout[0], ARG_I(g, 2), ARG_I(g, 3), ARG_I(g, 4)));
}

AC_OP(diagonal,
      .sig = "diagonal(x: tensor, offset: int = 0, dim1: dim = 0, dim2: dim = 1) -> view(x)",
      .shape = shape, .grad = grad);
AC_OP(
    diagonal_backward,
    .sig =
        "diagonal_backward(dy: tensor, shape: shape, offset: int, dim1: dim, dim2: dim) -> tensor",
    .shape = shape_back, .cpu = cpu_back, .any_device = true, .grad = grad_back, .hidden = true,
    .on_complex = aci_complex_parts);
