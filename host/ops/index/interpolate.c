/* interpolate: x resized along its last dims, to size or by scale_factor (one number for all of them, or one each).
   x (batch, channels, spatial dims) -> y (batch, channels, resized). Floats, or any dtype for the nearest modes
   mode: nearest and nearest_exact take one element, area means over all that fall on a position (1 to 3 spatial
   dims). linear (1), bilinear (2) and trilinear (3) weigh neighbours, bicubic (2) four of them along each dim.
   align_corners: the centres of the outer elements coincide, instead of the outer edges (the last four modes).
   recompute_scale_factor: positions follow from the sizes, also if they were given by scale_factor
   antialias: a reduction weighs all elements that fall on a position (bilinear, bicubic), as image libraries do
   gradient: dx = dy summed with the same weights (interpolate_backward).
   example: accel.tensor { { { 1.0, 2.0 } } }:interpolate { scale_factor = 2 } --> { { { 1, 1, 2, 2 } } }
   example: accel.arange(8.0):view(1, 1, 1, 8):interpolate({ 1, 2 }, { mode = "bilinear", antialias = true }) --> { { { { 1.892857, 5.107143 } } } }
   example: accel.tensor { { { 1.0, 3.0 } } }:interpolate(3, { mode = "linear", align_corners = true }) --> { { { 1, 2, 3 } } } */
#include "ops/core/ctx_impl.h"
#include "ops/index/remap.h"
#include "ops/index/resample.h"
#include "ops/index/resize.h"

static bool is_nearest(int64_t mode) { return mode == ACI_NEAREST || mode == ACI_NEAREST_EXACT; }

/* Extent after resizing n by a factor. -1: there is none. */
static int64_t resized(int64_t n, double factor) {
  double v = floor((double)n * factor);
  return v >= 1 && v < 0x1p62 ? (int64_t)v : -1;
}

/* The weights of one dim. factor: the given scale, 0 to use the sizes. */
static ac_status weights(ac_frame *f, int64_t mode, bool corners, int64_t n, int64_t n_out,
                         double factor, aci_taps *t, ac_err *e) {
  const aci_resize r = aci_resize_of(mode, corners, n, n_out, factor);
  const int64_t most = mode == ACI_AREA      ? n + 2 * n_out
                       : mode == ACI_BICUBIC ? 4 * n_out
                       : aci_resize_is_smooth(mode)
                           ? n_out * (4 * (int64_t)ceil(r.scale > 1 ? r.scale : 1) + 1)
                           : 2 * n_out;
  AC_TRY(aci_taps_new(f, n, n_out, most, t, e));
  for (int64_t o = 0; o < n_out; o++) {
    const aci_resize_taps k = aci_resize_at(&r, o);
    for (int64_t i = 0; i < k.count; i++)
      aci_taps_add(t, aci_resize_position(&r, &k, i), aci_resize_weight(&k, i));
    aci_taps_row(t, o);
  }
  return AC_OK;
}

/* ---- the public op: resolves size, then calls the hidden op ---- */
static ac_status check(ac_expr *x, const ac_value *a, int64_t *size) {
  const ac_tensor *t = a[0].tensor;
  const ac_value *want = &a[1], *factor = &a[2];
  const int64_t mode = a[3].i;
  const int n = t->ndim - 2;
  char s[128];
  aci_shape_str(t->ndim, t->shape, s, sizeof s);
  const int due = mode == ACI_LINEAR                            ? 1
                  : mode == ACI_BILINEAR || mode == ACI_BICUBIC ? 2
                  : mode == ACI_TRILINEAR                       ? 3
                                                                : 0;
  if (n < 1 || n > 3 || (due > 0 && n != due))
    return AC_FAIL(x->e, SHAPE, "this mode takes a tensor (batch, channels, %s), got shape %s",
                   due == 0   ? "1 to 3 more dims"
                   : due == 1 ? "one more dim"
                   : due == 2 ? "two more dims"
                              : "three more dims",
                   s);
  if ((want->kind == AC_T_NONE) == (factor->kind == AC_T_NONE))
    return AC_FAIL(x->e, INVALID, "give either size or scale_factor");
  const int given = want->kind == AC_T_NONE ? factor->n : want->n;
  if (given != 1 && given != n)
    return AC_FAIL(x->e, INVALID, "%d numbers are given for the %d resized dims of %s", given, n,
                   s);
  if (a[4].b && (is_nearest(mode) || mode == ACI_AREA))
    return AC_FAIL(
        x->e, INVALID,
        "align_corners means something for linear, bilinear, bicubic and trilinear only");
  if (!is_nearest(mode) && !ac_dtype_is_float((ac_dtype)t->dtype))
    return AC_FAIL(x->e, DTYPE, "this mode takes floats, got %s",
                   ac_dtype_name((ac_dtype)t->dtype));
  if (a[5].b && want->kind != AC_T_NONE)
    return AC_FAIL(x->e, INVALID,
                   "recompute_scale_factor means something with scale_factor only; leave it out");
  if (a[6].b && (due != 2))
    return AC_FAIL(x->e, INVALID, "antialias means something for bilinear and bicubic only");
  for (int d = 0; d < n; d++) {
    const int i = given == 1 ? 0 : d;
    size[d] = want->kind == AC_T_NONE ? resized(t->shape[d + 2], factor->floats[i]) : want->ints[i];
    if (size[d] < 1 || t->shape[d + 2] < 1)
      return AC_FAIL(x->e, SHAPE, "dim %d of %s cannot be resized so", d + 2 + x->ctx->index_base,
                     s);
  }
  return AC_OK;
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  int64_t size[3];
  double factor[3] = {0};
  x->st = check(x, a, size);
  if (x->st != AC_OK) return 0;
  const int n = a[0].tensor->ndim - 2;
  const int64_t mode = !a[6].b                  ? a[3].i
                       : a[3].i == ACI_BILINEAR ? ACI_SMOOTH_LINEAR
                                                : ACI_SMOOTH_CUBIC;
  if (a[2].kind != AC_T_NONE && !a[5].b)
    for (int d = 0; d < n; d++) factor[d] = a[2].floats[a[2].n == 1 ? 0 : d];
  out[0] = x_interpolate_to(x, a[0].tensor, size, n, factor, n, mode, a[4].b);
  return 1;
}

/* ---- interpolate_to: sizes and factors final ---- */
static ac_status resize_check(const ac_frame *f, int ndim, int n, int n_factors,
                              const int64_t *from, const int64_t *to, ac_err *e) {
  bool ok = n >= 1 && n == ndim - 2 && n_factors == n && ARG_I(f, f->n_args - 2) >= 0 &&
            ARG_I(f, f->n_args - 2) <= ACI_SMOOTH_CUBIC;
  for (int d = 0; ok && d < n; d++)
    ok = from[d] >= 1 && to[d] >= 1 && from[d] < INT32_MAX && to[d] < INT32_MAX;
  return ok ? AC_OK : AC_FAIL(e, INVALID, "sizes do not fit, or are too large");
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int64_t s[AC_MAX_DIMS];
  AC_TRY(resize_check(f, x->ndim, f->args[1].n, f->args[2].n, x->shape + 2, f->args[1].ints, e));
  memcpy(s, x->shape, 2 * 8);
  memcpy(s + 2, f->args[1].ints, (size_t)f->args[1].n * 8);
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, s, e);
}

/* Nearest: elements are moved, not weighed. */
static ac_status move(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  const ac_tensor *y = f->out[0];
  aci_remap m;
  ac_block *block;
  int64_t runs = 1;
  for (int d = 2; d < x->ndim; d++) runs += y->shape[d];
  AC_TRY(ac_block_alloc(f->device, (size_t)runs * sizeof(aci_run), AC_MEM_ACTIVATION, f->stream,
                        &block, e));
  aci_run *run = ac_block_ptr(block);
  aci_remap_init(&m, x->ndim, x->shape, x->stride, 0);
  for (int d = 2; d < x->ndim; d++) {
    const int64_t n = x->shape[d], n_out = y->shape[d];
    const aci_resize r = aci_resize_of(ARG_I(f, 3), false, n, n_out, f->args[2].floats[d - 2]);
    aci_dim_map *k = &m.dim[d];
    k->run = run;
    run += n_out;
    aci_remap_begin(k, n_out);
    bool even = n_out > n && n_out % n == 0;
    for (int64_t o = 0; o < n_out; o++) {
      int64_t from = aci_resize_nearest(&r, o);
      even = even && from == o / (n_out / n);
      aci_remap_add(k, o, from, 1, 1);
    }
    if (even) k->repeat = n_out / n;
  }
  const ac_status st = aci_remap_run(f, f->out[0], aci_data(x), &m, NULL, e);
  ac_block_free(block);
  return st;
}

static ac_status weigh(ac_frame *f, const ac_tensor *x, const int64_t *from, const int64_t *to,
                       const double *factor, bool back, ac_err *e) {
  ac_tensor *y = f->out[0];
  const int64_t mode = ARG_I(f, f->n_args - 2);
  aci_taps taps[AC_MAX_DIMS] = {0};
  ac_status st = AC_OK;
  for (int d = 0; d < y->ndim; d++) {
    taps[d] = aci_taps_identity(y->shape[d]);
    if (d < 2) continue;
    AC_GOTO(done, st,
            weights(f, mode, ARG_B(f, f->n_args - 1), from[d - 2], to[d - 2], factor[d - 2],
                    &taps[d], e));
    if (back) AC_GOTO(done, st, aci_taps_transpose(f, &taps[d], e));
  }
  st = aci_resample(f, y, x, taps, e);
done:
  aci_taps_free(taps, y->ndim);
  return st;
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  if (f->out[0]->numel == 0) return AC_OK;
  if (is_nearest(ARG_I(f, 3))) return move(f, e);
  return weigh(f, x, x->shape + 2, f->args[1].ints, f->args[2].floats, false, e);
}

static void grad(ac_grad *g) {
  ac_grad_set(g, 0,
              x_interpolate_backward(&g->x, g->dout[0], ac_grad_shape(g, 0, 0),
                                     ac_grad_ndim(g, 0, 0), g->args[2].floats, g->args[2].n,
                                     ARG_I(g, 3), ARG_B(g, 4)));
}

static ac_status shape_back(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = ARG_T(f, 0);
  const ac_value *want = &f->args[1];
  if (want->n != dy->ndim || dy->ndim < 3 || memcmp(want->ints, dy->shape, 2 * 8) != 0)
    return AC_FAIL(e, SHAPE, "dy does not fit the tensor resized");
  AC_TRY(resize_check(f, dy->ndim, dy->ndim - 2, f->args[2].n, want->ints + 2, dy->shape + 2, e));
  if (!ac_dtype_is_float((ac_dtype)dy->dtype)) return AC_FAIL(e, DTYPE, "dy must be floats");
  return ac_frame_out(f, (ac_dtype)dy->dtype, want->n, want->ints, e);
}

static ac_status cpu_back(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = ARG_T(f, 0);
  if (f->out[0]->numel == 0) return AC_OK;
  return weigh(f, dy, f->args[1].ints + 2, dy->shape + 2, f->args[2].floats, true, e);
}

static void grad_back(ac_grad *g) {
  ac_grad_set(g, 0,
              x_interpolate_to(&g->x, g->dout[0], ac_grad_shape(g, 0, 0) + 2,
                               ac_grad_ndim(g, 0, 0) - 2, g->args[2].floats, g->args[2].n,
                               ARG_I(g, 3), ARG_B(g, 4)));
}

AC_OP(
    interpolate,
    .sig =
        "interpolate(x: tensor, size: ints?, scale_factor: floats?, mode: "
        "enum(nearest|nearest_exact|linear|bilinear|bicubic|trilinear|area) = nearest, align_corners: "
        "bool = false, recompute_scale_factor: bool = false, antialias: bool = false) "
        "-> tensor",
    .composed = composed);
AC_OP(
    interpolate_to,
    .sig =
        "interpolate_to(x: tensor, size: ints, scale_factor: floats, mode: int, align_corners: bool) -> "
        "tensor",
    .shape = shape, .cpu = cpu, .grad = grad, .hidden = true);
AC_OP(
    interpolate_backward,
    .sig =
        "interpolate_backward(dy: tensor, shape: shape, scale_factor: floats, mode: int, align_corners: "
        "bool) -> tensor",
    .shape = shape_back, .cpu = cpu_back, .grad = grad_back, .hidden = true);
