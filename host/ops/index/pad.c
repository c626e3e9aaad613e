/* pad: x with elements added at both ends of its last dims, or removed if a number is negative.
   x (..., n), pad (left, right of the last dim, left, right of the one before it, ...) -> y (..., left + n + right)
   mode selects the added elements: constant the value, reflect the elements inwards from the edge (which is not
   repeated), replicate the edge, circular the elements of the other end.
   gradient: dx = dy summed over the copies of each element (pad_backward). For constant it is dy cropped.
   example: accel.tensor { 1, 2, 3 }:pad { 1, 2 } --> { 0, 1, 2, 3, 0, 0 }
   example: accel.tensor { 1, 2, 3 }:pad({ 2, -1 }, { mode = "reflect" }) --> { 3, 2, 1, 2 }
   example: accel.tensor { 1, 2, 3, 4 }:pad({ -1, 2 }, "circular") --> { 2, 3, 4, 2, 3 }
   example: accel.tensor { { 1, 2 } }:pad({ 0, 0, 1, 0 }, "constant", 7) --> { { 7, 7 }, { 1, 2 } } */
#include "ops/index/remap.h"
#include "ops/index/resample.h"
#include "ops/map/fill.h"

/* Of dim d of ndim: the elements added on its left and right. */
static void sides(const ac_value *pad, int ndim, int d, int64_t *left, int64_t *right) {
  int i = 2 * (ndim - 1 - d);
  *left = i < pad->n ? pad->ints[i] : 0;
  *right = i + 1 < pad->n ? pad->ints[i + 1] : 0;
}

/* How many of a dim's own positions are taken away. */
static int64_t cropped(int64_t left, int64_t right) {
  return (left < 0 ? -left : 0) + (right < 0 ? -right : 0);
}

/* The padded shape of `shape`, or why it cannot be padded so. */
static ac_status padded(const ac_frame *f, int ndim, const int64_t *shape, int64_t mode, int64_t *s,
                        ac_err *e) {
  const ac_value *pad = &f->args[1];
  const int64_t most = INT64_MAX / 4;
  int64_t left, right;
  char a[128];
  aci_shape_str(ndim, shape, a, sizeof a);
  if (pad->n % 2 != 0 || pad->n > 2 * ndim)
    return AC_FAIL(
        e, INVALID,
        "pad has %d numbers; two are needed for each padded dim, %d at most for shape %s", pad->n,
        2 * ndim, a);
  for (int d = 0; d < ndim; d++) {
    const int64_t n = shape[d], dim = ac_frame_show(f, d);
    sides(pad, ndim, d, &left, &right);
    const int64_t more = left > right ? left : right;
    bool ok = left > -most && left < most && right > -most && right < most;
    s[d] = ok ? n + left + right : -1;
    if (s[d] < 0)
      return AC_FAIL(e, SHAPE, "padding dim %lld of %s by %lld and %lld leaves no shape",
                     (long long)dim, a, (long long)left, (long long)right);
    if (mode == AC_PAD_MODE_REFLECT && more > 0 && more >= n)
      return AC_FAIL(e, SHAPE,
                     "reflect adds less than a dim has: dim %lld of %s cannot be padded by %lld",
                     (long long)dim, a, (long long)more);
    if ((mode == AC_PAD_MODE_CIRCULAR && more > n - cropped(left, right)) ||
        (mode == AC_PAD_MODE_REPLICATE && n == 0 && s[d] > 0))
      return AC_FAIL(e, SHAPE, "dim %lld of %s is too short to be padded by %lld", (long long)dim,
                     a, (long long)more);
  }
  return AC_OK;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int64_t s[AC_MAX_DIMS];
  if (ARG_I(f, 2) == AC_PAD_MODE_CONSTANT)
    AC_TRY(aci_fill_check(aci_float(ARG_F(f, 3)), (ac_dtype)x->dtype, e));
  else if (ARG_F(f, 3) != 0)
    return AC_FAIL(e, INVALID, "a value is given, but mode is not constant");
  AC_TRY(padded(f, x->ndim, x->shape, ARG_I(f, 2), s, e));
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, s, e);
}

/* The runs of a padded dim of n positions. */
static void map_dim(aci_dim_map *k, int mode, int64_t n, int64_t left, int64_t right) {
  const int64_t n_out = left + n + right, l = left > 0 ? left : 0, r = right > 0 ? right : 0;
  aci_remap_begin(k, n_out);
  switch (mode) {
    case AC_PAD_MODE_CONSTANT:
      aci_remap_add(k, 0, -1, 0, l < n_out ? l : n_out);
      aci_remap_add(k, left, 0, 1, n);
      aci_remap_add(k, n_out - r, -1, 0, r);
      break;
    case AC_PAD_MODE_REFLECT:
      aci_remap_add(k, 0, left, -1, l);
      aci_remap_add(k, left, 0, 1, n);
      aci_remap_add(k, left + n, n - 2, -1, r);
      break;
    case AC_PAD_MODE_REPLICATE:
      aci_remap_add(k, 0, 0, 0, l);
      aci_remap_add(k, left, 0, 1, n);
      aci_remap_add(k, left + n, n - 1, 0, r);
      break;
    default: /* around the remaining part of the dim */
      aci_remap_add(k, 0, n - left - cropped(0, right), 1, l);
      aci_remap_add(k, left, 0, 1, n);
      aci_remap_add(k, left + n, cropped(left, 0), 1, r);
      break;
  }
}

void aci_pad_maps(const ac_frame *f, int ndim, const int64_t *shape, const int64_t *stride,
                  aci_remap *m) {
  int64_t left, right;
  aci_remap_init(m, ndim, shape, stride, 0);
  for (int d = 0; d < ndim; d++) {
    sides(&f->args[1], ndim, d, &left, &right);
    if (left != 0 || right != 0) map_dim(&m->dim[d], (int)ARG_I(f, 2), shape[d], left, right);
  }
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  aci_remap m;
  int64_t value[1];
  if (f->out[0]->numel == 0) return AC_OK;
  aci_scalar_bytes(aci_float(ARG_F(f, 3)), (ac_dtype)x->dtype, value);
  aci_pad_maps(f, x->ndim, x->shape, x->stride, &m);
  return aci_remap_run(f, f->out[0], aci_data(x), &m, value, e);
}

static void grad(ac_grad *g) {
  const ac_value *pad = &g->args[1];
  int64_t back[2 * AC_MAX_DIMS];
  if (ARG_I(g, 2) == AC_PAD_MODE_CONSTANT) {
    for (int i = 0; i < pad->n; i++) back[i] = -pad->ints[i];
    ac_grad_set(g, 0, x_pad(&g->x, g->dout[0], back, pad->n, AC_PAD_MODE_CONSTANT, 0));
  } else {
    ac_grad_set(g, 0,
                x_pad_backward(&g->x, g->dout[0], pad->ints, pad->n, ARG_I(g, 2),
                               ac_grad_shape(g, 0, 0), ac_grad_ndim(g, 0, 0)));
  }
}

static ac_status shape_back(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = ARG_T(f, 0);
  const ac_value *want = &f->args[3];
  const int64_t mode = ARG_I(f, 2);
  int64_t s[AC_MAX_DIMS];
  if (mode <= AC_PAD_MODE_CONSTANT || mode > AC_PAD_MODE_CIRCULAR)
    return AC_FAIL(e, INVALID, "there is no such mode");
  if (want->n != dy->ndim) return AC_FAIL(e, SHAPE, "dy has another rank than the tensor padded");
  AC_TRY(padded(f, want->n, want->ints, mode, s, e));
  if (memcmp(s, dy->shape, (size_t)dy->ndim * 8) != 0)
    return AC_FAIL(e, SHAPE, "dy does not have the padded shape");
  if (!ac_dtype_is_float((ac_dtype)dy->dtype)) return AC_FAIL(e, DTYPE, "dy must be floats");
  return ac_frame_out(f, (ac_dtype)ARG_T(f, 0)->dtype, f->args[3].n, f->args[3].ints, e);
}

static ac_status cpu_back(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = ARG_T(f, 0), *dx = f->out[0];
  aci_taps taps[AC_MAX_DIMS] = {0};
  ac_status st = AC_OK;
  if (dx->numel == 0) return AC_OK;
  for (int d = 0; d < dx->ndim; d++) {
    int64_t left, right;
    aci_dim_map k = {.n_in = dx->shape[d]};
    sides(&f->args[1], dx->ndim, d, &left, &right);
    taps[d] = aci_taps_identity(dx->shape[d]);
    if (left == 0 && right == 0) continue;
    k.run = k.own;
    map_dim(&k, (int)ARG_I(f, 2), dx->shape[d], left, right);
    AC_GOTO(done, st, aci_taps_new(f, k.n_in, k.n_out, k.n_out, &taps[d], e));
    for (int64_t o = 0, r = 0; o < k.n_out; o++) {
      if (r + 1 < k.n_runs && k.run[r + 1].at == o) r++;
      aci_taps_add(&taps[d], k.run[r].from + (o - k.run[r].at) * k.run[r].step, 1);
      aci_taps_row(&taps[d], o);
    }
    AC_GOTO(done, st, aci_taps_transpose(f, &taps[d], e));
  }
  st = aci_resample(f, f->out[0], dy, taps, e);
done:
  aci_taps_free(taps, dx->ndim);
  return st;
}

static void grad_back(ac_grad *g) {
  ac_grad_set(g, 0, x_pad(&g->x, g->dout[0], g->args[1].ints, g->args[1].n, (int)ARG_I(g, 2), 0));
}

AC_OP(
    pad,
    .sig =
        "pad(x: tensor, pad: ints, mode: enum(constant|reflect|replicate|circular) = constant, value: "
        "float = 0) -> tensor",
    .shape = shape, .cpu = cpu, .any_device = true, .grad = grad, .on_complex = aci_complex_parts);
AC_OP(pad_backward, .sig = "pad_backward(dy: tensor, pad: ints, mode: int, shape: shape) -> tensor",
      .shape = shape_back, .cpu = cpu_back, .grad = grad_back, .hidden = true,
      .on_complex = aci_complex_parts);
