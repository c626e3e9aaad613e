/* slice_backward: pieces at their positions along dim in a tensor of zeros. It is the gradient of narrow, select,
   split and chunk in one pass, so that no tensor of zeros is made and added per piece.
   dys (n tensors, shape but for dim), starts (n, ascending, not overlapping) -> dx (shape)
   gradient: d(dys[i]) = the piece of ddx at starts[i]. */
#include "ops/index/index.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_value *dys = &f->args[0], *starts = &f->args[3];
  int n = f->args[1].n;
  int64_t d = ARG_I(f, 2), end = 0;
  AC_CHECK(dys->n >= 1 && dys->n == starts->n && d >= 0 && d < n, e);
  for (int i = 0; i < dys->n; i++) {
    AC_CHECK(dys->tensors[i]->ndim == n && starts->ints[i] >= end, e);
    end = starts->ints[i] + dys->tensors[i]->shape[d];
  }
  AC_CHECK(end <= f->args[1].ints[d], e);
  return ac_frame_out(f, (ac_dtype)dys->tensors[0]->dtype, n, f->args[1].ints, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *y = f->out[0];
  const ac_value *dys = &f->args[0];
  const int d = (int)ARG_I(f, 2);
  int64_t at = 0, s[AC_MAX_DIMS];
  aci_range dst = {.dtype = (ac_dtype)y->dtype}, src;
  memcpy(s, y->shape, (size_t)y->ndim * 8);
  memcpy(dst.stride, y->stride, (size_t)y->ndim * 8);
  for (int i = 0; i <= dys->n; i++) {
    int64_t start = i < dys->n ? f->args[3].ints[i] : y->shape[d];
    s[d] = start - at;
    dst.ptr = (char *)aci_data(y) + at * y->stride[d] * (int64_t)aci_dsize(dst.dtype);
    AC_TRY(aci_range_copy(f, y->ndim, s, &dst, NULL, e));
    if (i == dys->n) break;
    const ac_tensor *t = dys->tensors[i];
    src.ptr = aci_data(t);
    src.dtype = (ac_dtype)t->dtype;
    memcpy(src.stride, t->stride, (size_t)t->ndim * 8);
    dst.ptr = (char *)aci_data(y) + start * y->stride[d] * (int64_t)aci_dsize(dst.dtype);
    AC_TRY(aci_range_copy(f, y->ndim, t->shape, &dst, &src, e));
    at = start + t->shape[d];
  }
  return AC_OK;
}

static void grad(ac_grad *g) {
  int d = (int)ARG_I(g, 2);
  for (int i = 0; i < g->args[0].n; i++)
    if (ac_grad_needs_at(g, 0, i))
      ac_grad_set_at(g, 0, i,
                     x_narrow(&g->x, g->dout[0], d, g->args[3].ints[i], ac_grad_shape(g, 0, i)[d]));
}

AC_OP(slice_backward,
      .sig = "slice_backward(dys: tensors, shape: shape, dim: int, starts: ints) -> tensor",
      .shape = shape, .cpu = cpu, .any_device = true, .grad = grad, .hidden = true,
      .on_complex = aci_complex_parts);
