/* cat: tensors concatenated along dim.          n tensors (..., d_i, ...) -> y (..., sum of d_i, ...)
   Shapes agree except in dim. Tensors of shape (0) join anything. The result has the promoted dtype.
   gradient: each its part of dy.
   example: accel.cat({ accel.tensor { 1, 2 }, accel.tensor { 3 } }) --> { 1, 2, 3 }
   example: accel.cat({ accel.tensor { { 1 }, { 2 } }, accel.tensor { { 3 }, { 4 } } }, 2) --> { { 1, 3 }, { 2, 4 } } */
#include "ops/core/ctx_impl.h"
#include "ops/index/index.h"

/* PyTorch's old rule: an empty tensor of one dim is skipped. */
static bool skipped(const ac_tensor *t) { return t->ndim == 1 && t->shape[0] == 0; }

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_value *ts = &f->args[0];
  const ac_tensor *first = NULL;
  char a[128], b[128];
  int d = 0, where = 0;
  int64_t s[AC_MAX_DIMS];
  if (ts->n == 0) return AC_FAIL(e, INVALID, "needs at least one tensor");
  for (int i = 0; i < ts->n && first == NULL; i++)
    if (!skipped(ts->tensors[i])) first = ts->tensors[where = i];
  if (first == NULL) first = ts->tensors[0];
  if (first->ndim == 0)
    return AC_FAIL(e, SHAPE, "tensor %d has rank 0 and cannot be joined; use stack", where + 1);
  AC_TRY(ac_frame_dim(f, 1, first->ndim, &d, e));
  memcpy(s, first->shape, (size_t)first->ndim * 8);
  s[d] = 0;
  for (int i = 0; i < ts->n; i++) {
    const ac_tensor *t = ts->tensors[i];
    if (skipped(t)) continue;
    bool ok = t->ndim == first->ndim;
    for (int k = 0; ok && k < t->ndim; k++) ok = k == d || t->shape[k] == s[k];
    if (!ok)
      return AC_FAIL(
          e, SHAPE,
          "tensors %d and %d have shapes %s and %s, which differ elsewhere than in dim %lld",
          where + 1, i + 1, aci_shape_str(first->ndim, first->shape, a, sizeof a),
          aci_shape_str(t->ndim, t->shape, b, sizeof b), (long long)ac_frame_show(f, d));
    s[d] += t->shape[d];
  }
  return ac_frame_out(f, ac_frame_promote(f, 0, 0), first->ndim, s, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *y = f->out[0];
  const ac_value *ts = &f->args[0];
  const int d = aci_wrap_dim(ARG_I(f, 1), y->ndim);
  int64_t at = 0;
  aci_range dst = {.dtype = (ac_dtype)y->dtype}, src;
  memcpy(dst.stride, y->stride, (size_t)y->ndim * 8);
  for (int i = 0; i < ts->n; i++) {
    const ac_tensor *t = ts->tensors[i];
    if (skipped(t)) continue;
    src.ptr = aci_data(t);
    src.dtype = (ac_dtype)t->dtype;
    memcpy(src.stride, t->stride, (size_t)t->ndim * 8);
    dst.ptr = (char *)aci_data(y) + at * y->stride[d] * (int64_t)aci_dsize(dst.dtype);
    AC_TRY(aci_range_copy(f, y->ndim, t->shape, &dst, &src, e));
    at += t->shape[d];
  }
  return AC_OK;
}

static void grad(ac_grad *g) {
  ac_tensor *dy = g->dout[0];
  int d = aci_wrap_dim(ARG_I(g, 1), dy->ndim);
  int64_t at = 0;
  for (int i = 0; i < g->args[0].n; i++) {
    int nd = ac_grad_ndim(g, 0, i);
    const int64_t *s = ac_grad_shape(g, 0, i);
    bool skip = nd == 1 && s[0] == 0;
    int64_t n = skip ? 0 : s[d];
    if (ac_grad_needs_at(g, 0, i)) {
      ac_tensor *part = x_narrow(&g->x, dy, d, at, n);
      ac_grad_set_at(g, 0, i, skip ? x_reshape(&g->x, part, s, nd) : part);
    }
    at += n;
  }
}

AC_OP(cat, .sig = "cat(tensors: tensors, dim: dim = 0) -> tensor", .shape = shape, .cpu = cpu,
      .any_device = true, .grad = grad, .autocast = AC_CAST_PROMOTE, .alias = "concat concatenate",
      .on_complex = aci_complex_parts);
