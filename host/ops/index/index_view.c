/* index_view: the part of x that a list of positions, ranges and new dims names (index_view.h
   defines the list).
   x (any shape), spec -> view of x.          gradient: dx = dy at its positions, zeros elsewhere
   (index_view_backward). */
#include "ops/index/index_view.h"

#include "ops/core/ctx_impl.h"
#include "ops/map/convert.h"
#include "ops/map/fill.h"
#include "ops/map/map.h"

ac_status aci_view_geometry(int ndim, const int64_t *shape, const int64_t *stride,
                            const ac_value *spec, int *out_ndim, int64_t *out_shape,
                            int64_t *out_stride, int64_t *offset, ac_err *e) {
  int d = 0, w = 0;
  *offset = 0;
  for (int i = 0; i + 2 < spec->n; i += 3) {
    const int64_t start = spec->ints[i], length = spec->ints[i + 1], step = spec->ints[i + 2];
    if (w == AC_MAX_DIMS && length != ACI_VIEW_SELECT)
      return AC_FAIL(e, SHAPE, "a tensor has at most %d dims", AC_MAX_DIMS);
    if (length == ACI_VIEW_NEW) {
      out_shape[w] = out_stride[w] = 1;
      w++;
      continue;
    }
    if (d == ndim) return AC_FAIL(e, INVALID, "the spec has more entries than the tensor has dims");
    const int64_t n = shape[d];
    bool ok = start >= 0 && start <= n && length >= ACI_VIEW_SELECT && step >= 0;
    if (ok && length == ACI_VIEW_SELECT) ok = start < n;
    if (ok && length > 1) ok = step > 0 && length - 1 <= (n - 1 - start) / step;
    if (ok && length == 1) ok = start < n;
    if (!ok)
      return AC_FAIL(e, INVALID, "entry %d of the spec does not fit %lld positions", i / 3 + 1,
                     (long long)n);
    if (length != 0) *offset += start * stride[d]; /* an empty part may start past the end */
    if (length != ACI_VIEW_SELECT) {
      out_shape[w] = length;
      out_stride[w++] = length > 1 ? stride[d] * step : stride[d];
    }
    d++;
  }
  if (spec->n % 3 != 0) return AC_FAIL(e, INVALID, "the spec has three numbers for each entry");
  for (; d < ndim; d++, w++) {
    if (w == AC_MAX_DIMS) return AC_FAIL(e, SHAPE, "a tensor has at most %d dims", AC_MAX_DIMS);
    out_shape[w] = shape[d];
    out_stride[w] = stride[d];
  }
  *out_ndim = w;
  return AC_OK;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int64_t s[AC_MAX_DIMS], st[AC_MAX_DIMS], off;
  int nd;
  AC_TRY(aci_view_geometry(x->ndim, x->shape, x->stride, &f->args[1], &nd, s, st, &off, e));
  return ac_frame_view(f, 0, nd, s, st, x->offset + off, e);
}

static void grad(ac_grad *g) {
  ac_grad_set(g, 0,
              x_index_view_backward(&g->x, g->dout[0], g->args[1].ints, g->args[1].n,
                                    ac_grad_shape(g, 0, 0), ac_grad_ndim(g, 0, 0)));
}

/* ---- dy at its positions in zeros ---- */
static ac_status shape_back(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = ARG_T(f, 0);
  const ac_value *want = &f->args[2];
  int64_t s[AC_MAX_DIMS], st[AC_MAX_DIMS], full[AC_MAX_DIMS], off;
  int nd;
  AC_TRY(ac_frame_out(f, (ac_dtype)dy->dtype, want->n, want->ints, e));
  aci_contiguous_strides(want->n, want->ints, full);
  AC_TRY(aci_view_geometry(want->n, want->ints, full, &f->args[1], &nd, s, st, &off, e));
  if (nd != dy->ndim || memcmp(s, dy->shape, (size_t)nd * 8) != 0)
    return AC_FAIL(e, SHAPE, "dy does not have the shape of the view");
  return AC_OK;
}

/* Zeros at elements that dy does not cover. If a single dim is sliced, these are only before and
 * after it. */
static ac_status zero_rest(ac_frame *f, ac_err *e) {
  const ac_tensor *dx = f->out[0];
  const ac_value *spec = &f->args[1];
  int64_t start = 0, length = 0, step = 1, s[AC_MAX_DIMS];
  int cut = -1, n_cut = 0, d = 0;
  for (int i = 0; i < spec->n; i += 3) {
    const int64_t *k = spec->ints + i;
    if (k[1] == ACI_VIEW_NEW) continue;
    if (k[1] == ACI_VIEW_SELECT || k[1] < dx->shape[d]) {
      n_cut++;
      cut = d;
      start = k[0];
      length = k[1] == ACI_VIEW_SELECT ? 1 : k[1];
      step = length > 1 ? k[2] : 1;
    }
    d++;
  }
  if (n_cut == 0) return AC_OK;
  if (n_cut > 1 || step != 1) return aci_fill(f, aci_float(0), e);
  memcpy(s, dx->shape, (size_t)dx->ndim * 8);
  for (int side = 0; side < 2; side++) {
    int64_t at = side == 0 ? 0 : start + length;
    aci_range dst = {.ptr = (char *)aci_data(dx) +
                            at * dx->stride[cut] * (int64_t)aci_dsize((ac_dtype)dx->dtype),
                     .dtype = (ac_dtype)dx->dtype};
    s[cut] = side == 0 ? start : dx->shape[cut] - at;
    memcpy(dst.stride, dx->stride, (size_t)dx->ndim * 8);
    AC_TRY(aci_range_copy(f, dx->ndim, s, &dst, NULL, e));
  }
  return AC_OK;
}

static ac_status cpu_back(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = ARG_T(f, 0), *dx = f->out[0];
  aci_range dst = {.dtype = (ac_dtype)dx->dtype},
            src = {.ptr = aci_data(dy), .dtype = (ac_dtype)dy->dtype};
  int64_t s[AC_MAX_DIMS], off;
  int nd;
  if (dx->numel == 0) return AC_OK;
  AC_TRY(zero_rest(f, e));
  AC_TRY(
      aci_view_geometry(dx->ndim, dx->shape, dx->stride, &f->args[1], &nd, s, dst.stride, &off, e));
  dst.ptr = (char *)aci_data(dx) + off * (int64_t)aci_dsize(dst.dtype);
  memcpy(src.stride, dy->stride, (size_t)nd * 8);
  AC_TRY(aci_range_copy(f, nd, s, &dst, &src, e));
  return AC_OK;
}

static void grad_back(ac_grad *g) {
  ac_grad_set(g, 0, x_index_view(&g->x, g->dout[0], g->args[1].ints, g->args[1].n));
}

/* ---- x[spec] := value: assignment to a part, with its position in the graph ---- */

/* A value's shape without the leading 1s that the view has no dims for. */
static int value_dims(const ac_tensor *v, int nd) {
  int skip = 0;
  while (v->ndim - skip > nd && v->shape[skip] == 1) skip++;
  return skip;
}

static ac_status shape_put(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int64_t s[AC_MAX_DIMS], st[AC_MAX_DIMS], off;
  int nd;
  char a[128], b[128];
  AC_TRY(aci_view_geometry(x->ndim, x->shape, x->stride, &f->args[2], &nd, s, st, &off, e));
  if (f->args[1].kind == AC_T_SCALAR) {
    AC_TRY(aci_fill_check(f->args[1].scalar, (ac_dtype)x->dtype, e));
  } else {
    const ac_tensor *v = ARG_T(f, 1);
    int skip = value_dims(v, nd), lead = nd - (v->ndim - skip);
    bool ok = lead >= 0;
    for (int d = skip; ok && d < v->ndim; d++)
      ok = v->shape[d] == 1 || v->shape[d] == s[lead + d - skip];
    if (!ok)
      return AC_FAIL(
          e, SHAPE, "a value of shape %s does not fit the part of shape %s that it is assigned to",
          aci_shape_str(v->ndim, v->shape, a, sizeof a), aci_shape_str(nd, s, b, sizeof b));
  }
  return ac_frame_alias(f, 0, e);
}

static ac_status cpu_put(ac_frame *f, ac_err *e) {
  ac_tensor *x = f->out[0];
  aci_range dst = {.dtype = (ac_dtype)x->dtype}, src = {0};
  int64_t s[AC_MAX_DIMS], off, number[1];
  int nd;
  AC_TRY(aci_view_geometry(x->ndim, x->shape, x->stride, &f->args[2], &nd, s, dst.stride, &off, e));
  for (int d = 0; d < nd; d++)
    if (s[d] == 0) return AC_OK;
  dst.ptr = (char *)aci_data(x) + off * (int64_t)aci_dsize(dst.dtype);
  if (f->args[1].kind == AC_T_SCALAR) {
    aci_scalar_bytes(f->args[1].scalar, dst.dtype, number);
    if (f->ctx->drivers[f->device->kind] != NULL) { /* a device does not read the host's number */
      ac_tensor *part = aci_tensor_alias(x, nd, s, dst.stride, x->offset + off);
      if (part == NULL) return AC_FAIL(e, OOM, "no memory for a tensor's head");
      const ac_status st = f->ctx->drivers[f->device->kind]->fill(f, part, number, e);
      ac_tensor_release(part);
      return st;
    }
    src.ptr = number;
    src.dtype = dst.dtype;
  } else {
    const ac_tensor *v = ARG_T(f, 1);
    int skip = value_dims(v, nd), lead = nd - (v->ndim - skip);
    src.ptr = aci_data(v);
    src.dtype = (ac_dtype)v->dtype;
    for (int d = skip; d < v->ndim; d++)
      src.stride[lead + d - skip] = v->shape[d] == 1 ? 0 : v->stride[d];
  }
  AC_TRY(aci_range_copy(f, nd, s, &dst, &src, e));
  return AC_OK;
}

static void grad_put(ac_grad *g) {
  ac_expr *ex = &g->x;
  const int64_t *spec = g->args[2].ints;
  const int n = g->args[2].n;
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0, x_index_view_put_(ex, x_clone(ex, g->dout[0]), F(0), spec, n));
  if (g->args[1].kind != AC_T_TENSOR || !ac_grad_needs(g, 1)) return;
  ac_tensor *d = x_index_view(ex, g->dout[0], spec, n);
  int nd = ac_grad_ndim(g, 1, 0);
  const int64_t *s = ac_grad_shape(g, 1, 0);
  int skip = d != NULL && nd > d->ndim ? nd - d->ndim : 0;
  d = x_sum_to(ex, d, s + skip, nd - skip);
  if (skip > 0) d = x_reshape(ex, d, s, nd);
  ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, d));
}

AC_OP(index_view, .sig = "index_view(x: tensor, spec: ints) -> view(x)", .shape = shape,
      .grad = grad, .hidden = true);
AC_OP(index_view_backward,
      .sig = "index_view_backward(dy: tensor, spec: ints, shape: shape) -> tensor",
      .shape = shape_back, .cpu = cpu_back, .any_device = true, .grad = grad_back, .hidden = true,
      .on_complex = aci_complex_parts);
AC_OP(index_view_put_, .sig = "index_view_put_(x!: tensor, value: operand, spec: ints) -> tensor",
      .shape = shape_put, .cpu = cpu_put, .any_device = true, .grad = grad_put, .hidden = true,
      .complex_as = AC_COMPLEX_PAIRS);
