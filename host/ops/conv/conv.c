/* Shape and gradient rules of convolutions, and their way to the kernels: see conv.h. */
#include "ops/conv/conv.h"

#include "ops/core/ctx_impl.h"
#include "ops/index/index.h"

/* ---- arguments ---- */
static const char *param_name(const ac_frame *f, int arg) {
  return aci_op_sig(f->op)->param[arg].name;
}

ac_status aci_window_ints(const ac_frame *f, int arg, int n, int64_t least, int64_t *v, ac_err *e) {
  const ac_value *a = &f->args[arg];
  char s[128];
  if (a->n != 1 && a->n != n)
    return AC_FAIL(e, INVALID, "%s takes one number or %d, got %s", param_name(f, arg), n,
                   aci_shape_str(a->n < AC_MAX_DIMS ? a->n : AC_MAX_DIMS, a->ints, s, sizeof s));
  for (int i = 0; i < n; i++) {
    v[i] = a->ints[a->n == 1 ? 0 : i];
    /* the op handles it */
    if (v[i] == AC_INT_NONE && aci_op_sig(f->op)->param[arg].holes) continue;
    if (v[i] < least || v[i] > ACI_WINDOW_MAX)
      return AC_FAIL(e, INVALID, "%s must lie between %lld and %d, got %lld", param_name(f, arg),
                     (long long)least, ACI_WINDOW_MAX, (long long)v[i]);
  }
  return AC_OK;
}

ac_status aci_window_input(const ac_frame *f, const ac_tensor *x, int n, ac_err *e) {
  static const char *const space[] = {"", "L", "H, W", "D, H, W"};
  char s[128];
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(
        e, DTYPE,
        "works on floating point (f64, f32, f16, bf16), not %s; cast it with x:to(\"f32\")",
        ac_dtype_name((ac_dtype)x->dtype));
  if (x->ndim != n + 1 && x->ndim != n + 2)
    return AC_FAIL(e, SHAPE, "needs an input of shape (N, C, %s) or (C, %s), got %s", space[n],
                   space[n], aci_shape_str(x->ndim, x->shape, s, sizeof s));
  return AC_OK;
}

static ac_status same_dtypes(const ac_frame *f, int from, int to, ac_err *e) {
  const ac_tensor *x = ARG_T(f, from);
  char a[160], b[160];
  for (int i = from + 1; i <= to; i++) {
    if (f->args[i].kind != AC_T_TENSOR || ARG_T(f, i)->dtype == x->dtype) continue;
    return AC_FAIL(e, DTYPE, "%s is %s but %s is %s; cast one of them", param_name(f, from),
                   aci_tensor_str(x, a, sizeof a), param_name(f, i),
                   aci_tensor_str(ARG_T(f, i), b, sizeof b));
  }
  return AC_OK;
}

static ac_status check_groups(const ac_frame *f, int arg, ac_err *e) {
  if (ARG_I(f, arg) < 1)
    return AC_FAIL(e, INVALID, "groups must be at least 1, got %lld", (long long)ARG_I(f, arg));
  return AC_OK;
}

static ac_status check_kernel(const ac_tensor *w, int n, ac_err *e) {
  char s[128];
  bool ok = w->ndim == n + 2;
  for (int d = 2; ok && d < w->ndim; d++) ok = w->shape[d] >= 1 && w->shape[d] <= ACI_WINDOW_MAX;
  if (ok) return AC_OK;
  return AC_FAIL(e, SHAPE,
                 "the weight must have %d dims with kernel extents of at least 1, got shape %s",
                 n + 2, aci_shape_str(w->ndim, w->shape, s, sizeof s));
}

static ac_status check_bias(const ac_frame *f, int64_t channels, ac_err *e) {
  char s[128];
  if (ARG_NONE(f, 2)) return AC_OK;
  const ac_tensor *b = ARG_T(f, 2);
  if (b->ndim == 1 && b->shape[0] == channels) return AC_OK;
  return AC_FAIL(e, SHAPE, "%lld output channels need a bias of shape (%lld), got %s",
                 (long long)channels, (long long)channels,
                 aci_shape_str(b->ndim, b->shape, s, sizeof s));
}

/* Extent of y for the windows that fit into x. */
static int64_t narrow_extent(int64_t in, int64_t k, int64_t stride, int64_t pad, int64_t dil) {
  int64_t room = in + 2 * pad - dil * (k - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}

/* ---- shape rules ---- */
ac_status aci_conv_shape(ac_frame *f, int n, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *w = ARG_T(f, 1);
  int64_t stride[ACI_CONV_DIMS], pad[ACI_CONV_DIMS], dil[ACI_CONV_DIMS], s[AC_MAX_DIMS];
  char a[128], b[128];
  AC_TRY(aci_window_input(f, x, n, e));
  AC_TRY(same_dtypes(f, 0, 2, e));
  AC_TRY(check_kernel(w, n, e));
  AC_TRY(check_groups(f, 6, e));
  AC_TRY(aci_window_ints(f, 3, n, 1, stride, e));
  AC_TRY(aci_window_ints(f, 4, n, 0, pad, e));
  AC_TRY(aci_window_ints(f, 5, n, 1, dil, e));
  const int64_t groups = ARG_I(f, 6), channels = aci_space_channels(x->shape, x->ndim, n);
  int64_t wanted;
  if (__builtin_mul_overflow(groups, w->shape[1], &wanted) || wanted != channels)
    return AC_FAIL(
        e, SHAPE,
        "a weight of shape %s with groups = %lld reads %lld channels, the input has %lld: %s",
        aci_shape_str(w->ndim, w->shape, a, sizeof a), (long long)groups, (long long)wanted,
        (long long)channels, aci_shape_str(x->ndim, x->shape, b, sizeof b));
  if (w->shape[0] % groups != 0)
    return AC_FAIL(
        e, SHAPE, "the %lld output channels of a weight of shape %s do not divide by groups = %lld",
        (long long)w->shape[0], aci_shape_str(w->ndim, w->shape, a, sizeof a), (long long)groups);
  AC_TRY(check_bias(f, w->shape[0], e));
  memcpy(s, x->shape, (size_t)x->ndim * 8);
  s[x->ndim - n - 1] = w->shape[0];
  for (int i = 0; i < n; i++) {
    const int d = x->ndim - n + i;
    s[d] = narrow_extent(x->shape[d], w->shape[2 + i], stride[i], pad[i], dil[i]);
    if (s[d] < 1)
      return AC_FAIL(
          e, SHAPE,
          "a kernel of shape %s is larger than the padded input: dim %lld of %s has %lld elements, %lld with "
          "padding, and the kernel spans %lld",
          aci_shape_str(n, w->shape + 2, a, sizeof a), (long long)ac_frame_show(f, d),
          aci_shape_str(x->ndim, x->shape, b, sizeof b), (long long)x->shape[d],
          (long long)(x->shape[d] + 2 * pad[i]), (long long)(dil[i] * (w->shape[2 + i] - 1) + 1));
  }
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, s, e);
}

ac_status aci_conv_transpose_shape(ac_frame *f, int n, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *w = ARG_T(f, 1);
  int64_t stride[ACI_CONV_DIMS], pad[ACI_CONV_DIMS], more[ACI_CONV_DIMS], dil[ACI_CONV_DIMS],
      s[AC_MAX_DIMS];
  char a[128], b[128];
  AC_TRY(aci_window_input(f, x, n, e));
  AC_TRY(same_dtypes(f, 0, 2, e));
  AC_TRY(check_kernel(w, n, e));
  AC_TRY(check_groups(f, 6, e));
  AC_TRY(aci_window_ints(f, 3, n, 1, stride, e));
  AC_TRY(aci_window_ints(f, 4, n, 0, pad, e));
  AC_TRY(aci_window_ints(f, 5, n, 0, more, e));
  AC_TRY(aci_window_ints(f, 7, n, 1, dil, e));
  const int64_t groups = ARG_I(f, 6), channels = aci_space_channels(x->shape, x->ndim, n);
  int64_t made;
  if (w->shape[0] != channels || channels % groups != 0)
    return AC_FAIL(
        e, SHAPE, "a weight of shape %s reads %lld channels in %lld groups, the input has %lld: %s",
        aci_shape_str(w->ndim, w->shape, a, sizeof a), (long long)w->shape[0], (long long)groups,
        (long long)channels, aci_shape_str(x->ndim, x->shape, b, sizeof b));
  if (__builtin_mul_overflow(groups, w->shape[1], &made))
    return AC_FAIL(e, SHAPE, "groups = %lld of a weight of shape %s give too many channels",
                   (long long)groups, aci_shape_str(w->ndim, w->shape, a, sizeof a));
  AC_TRY(check_bias(f, made, e));
  memcpy(s, x->shape, (size_t)x->ndim * 8);
  s[x->ndim - n - 1] = made;
  for (int i = 0; i < n; i++) {
    const int d = x->ndim - n + i;
    if (more[i] >= stride[i] && more[i] >= dil[i])
      return AC_FAIL(e, INVALID,
                     "output_padding %lld must be smaller than stride %lld or dilation %lld",
                     (long long)more[i], (long long)stride[i], (long long)dil[i]);
    if (x->shape[d] > ((int64_t)1 << 60) / stride[i])
      return AC_FAIL(e, SHAPE, "an input of shape %s gives too large a result",
                     aci_shape_str(x->ndim, x->shape, b, sizeof b));
    s[d] =
        (x->shape[d] - 1) * stride[i] - 2 * pad[i] + dil[i] * (w->shape[2 + i] - 1) + more[i] + 1;
    if (s[d] < 1)
      return AC_FAIL(e, SHAPE,
                     "an input of shape %s leaves nothing in dim %lld: padding takes away %lld",
                     aci_shape_str(x->ndim, x->shape, b, sizeof b), (long long)ac_frame_show(f, d),
                     (long long)(2 * pad[i]));
  }
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, s, e);
}

/* ---- to the kernels ---- */
static aci_gemm_type type_of(ac_dtype d) {
  return d == AC_F64    ? ACI_GEMM_F64
         : d == AC_BF16 ? ACI_GEMM_BF16
         : d == AC_F16  ? ACI_GEMM_F16
                        : ACI_GEMM_F32;
}

ac_status aci_conv_describe(const ac_frame *f, const aci_conv_operands *o, aci_conv *c, ac_err *e) {
  const int n = o->n_kernel - 2;
  char a[128], b[128], k[128];
  int64_t stride[ACI_CONV_DIMS], pad[ACI_CONV_DIMS], dil[ACI_CONV_DIMS];
  bool ok = n >= 1 && n <= ACI_CONV_DIMS && o->n_wide == o->n_narrow &&
            (o->n_wide == n + 1 || o->n_wide == n + 2);
  if (ok) {
    AC_TRY(check_groups(f, o->groups, e));
    AC_TRY(aci_window_ints(f, o->stride, n, 1, stride, e));
    AC_TRY(aci_window_ints(f, o->stride + 1, n, 0, pad, e));
    AC_TRY(aci_window_ints(f, o->dilation, n, 1, dil, e));
    *c = (aci_conv){.type = type_of((ac_dtype)ARG_T(f, 0)->dtype),
                    .n = aci_space_batch(o->wide, o->n_wide, n),
                    .groups = ARG_I(f, o->groups)};
    c->ci = aci_space_channels(o->wide, o->n_wide, n) / c->groups;
    c->co = aci_space_channels(o->narrow, o->n_narrow, n) / c->groups;
    ok = c->n == aci_space_batch(o->narrow, o->n_narrow, n) && o->kernel[1] == c->ci &&
         o->kernel[0] == c->co * c->groups &&
         c->ci * c->groups == aci_space_channels(o->wide, o->n_wide, n) &&
         o->kernel[0] == aci_space_channels(o->narrow, o->n_narrow, n);
    for (int d = 0; d < ACI_CONV_DIMS; d++) {
      int i = d - (ACI_CONV_DIMS - n);
      c->in[d] = i < 0 ? 1 : aci_space(o->wide, o->n_wide, n)[i];
      c->k[d] = i < 0 ? 1 : o->kernel[2 + i];
      c->out[d] = i < 0 ? 1 : aci_space(o->narrow, o->n_narrow, n)[i];
      c->stride[d] = i < 0 ? 1 : stride[i];
      c->pad[d] = i < 0 ? 0 : pad[i];
      c->dil[d] = i < 0 ? 1 : dil[i];
      ok = ok && c->k[d] >= 1 && c->k[d] <= ACI_WINDOW_MAX &&
           c->out[d] <= narrow_extent(c->in[d], c->k[d], c->stride[d], c->pad[d], c->dil[d]);
    }
  }
  if (ok) return AC_OK;
  return AC_FAIL(e, SHAPE,
                 "shapes %s and %s do not belong to one convolution with a weight of shape %s",
                 aci_shape_str(o->n_wide, o->wide, a, sizeof a),
                 aci_shape_str(o->n_narrow, o->narrow, b, sizeof b),
                 aci_shape_str(o->n_kernel, o->kernel, k, sizeof k));
}

/* x, weight and bias (or NULL) as contiguous memory. */
static ac_status operands(ac_frame *f, const void *p[3], ac_block *block[3], ac_err *e) {
  for (int i = 0; i < 3; i++) {
    p[i] = NULL;
    if (f->args[i].kind == AC_T_TENSOR)
      AC_TRY(aci_contiguous_data(f, ARG_T(f, i), &p[i], &block[i], e));
  }
  return AC_OK;
}

ac_status aci_conv_run(ac_frame *f, int n, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *w = ARG_T(f, 1), *y = f->out[0];
  const aci_conv_operands o = {x->shape, w->shape, y->shape, x->ndim, w->ndim, y->ndim, 3, 5, 6};
  ac_block *block[3] = {NULL};
  const void *p[3];
  aci_conv c;
  AC_TRY(aci_conv_describe(f, &o, &c, e));
  ac_status st = operands(f, p, block, e);
  if (st == AC_OK) st = aci_conv_forward(f->team, &c, p[0], p[1], p[2], aci_data(y), e);
  for (int i = 0; i < 3; i++) ac_block_free(block[i]);
  return st;
}

ac_status aci_conv_transpose_run(ac_frame *f, int n, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *w = ARG_T(f, 1), *y = f->out[0];
  const aci_conv_operands o = {y->shape, w->shape, x->shape, y->ndim, w->ndim, x->ndim, 3, 7, 6};
  ac_block *block[3] = {NULL};
  const void *p[3];
  aci_conv c;
  AC_TRY(aci_conv_describe(f, &o, &c, e));
  ac_status st = operands(f, p, block, e);
  if (st == AC_OK) st = aci_conv_backward_input(f->team, &c, p[0], p[1], p[2], aci_data(y), e);
  for (int i = 0; i < 3; i++) ac_block_free(block[i]);
  return st;
}

static int64_t
per_element(const ac_tensor *w) { /* products that one element of the narrow side takes part in */
  return w->shape[0] > 0 ? w->numel / w->shape[0] : 0;
}
int64_t aci_conv_flops(const ac_frame *f) {
  return 2 * f->out[0]->numel * per_element(ARG_T(f, 1));
}
int64_t aci_conv_transpose_flops(const ac_frame *f) {
  return 2 * ARG_T(f, 0)->numel * per_element(ARG_T(f, 1));
}

/* ---- gradients ---- */
#define LIST(v) (v)->ints, (v)->n

ac_tensor *aci_conv_expr(ac_expr *ex, int n, ac_tensor *x, ac_tensor *w, const aci_conv_lists *l,
                         const int64_t *shape, int ndim) {
  ac_tensor *y = n == 1   ? x_conv1d(ex, x, w, NULL, LIST(l->stride), LIST(l->padding),
                                     LIST(l->dilation), l->groups)
                 : n == 2 ? x_conv2d(ex, x, w, NULL, LIST(l->stride), LIST(l->padding),
                                     LIST(l->dilation), l->groups)
                          : x_conv3d(ex, x, w, NULL, LIST(l->stride), LIST(l->padding),
                                     LIST(l->dilation), l->groups);
  for (int d = ndim - n; y != NULL && d < ndim; d++)
    if (y->shape[d] > shape[d]) y = x_narrow(ex, y, d, 0, shape[d]);
  return y;
}

ac_tensor *aci_conv_input_expr(ac_expr *ex, ac_tensor *dy, ac_tensor *w, const aci_conv_lists *l,
                               const int64_t *shape, int ndim) {
  return x_conv_backward_input(ex, dy, w, shape, ndim, LIST(l->stride), LIST(l->padding),
                               LIST(l->dilation), l->groups);
}

ac_tensor *aci_conv_weight_expr(ac_expr *ex, ac_tensor *dy, ac_tensor *x, const aci_conv_lists *l,
                                const int64_t *shape, int ndim) {
  return x_conv_backward_weight(ex, dy, x, shape, ndim, LIST(l->stride), LIST(l->padding),
                                LIST(l->dilation), l->groups);
}

/* The sum over all but the channels. */
static ac_tensor *bias_grad(ac_grad *g, int n) {
  ac_tensor *dy = g->dout[0];
  int64_t dims[AC_MAX_DIMS];
  int count = 0;
  for (int d = 0; d < dy->ndim; d++)
    if (d != dy->ndim - n - 1) dims[count++] = d;
  return x_sum(&g->x, dy, dims, count, false, NULL);
}

void aci_conv_grad(ac_grad *g, int n) {
  const aci_conv_lists l = {&g->args[3], &g->args[4], &g->args[5], ARG_I(g, 6)};
  ac_tensor *dy = g->dout[0];
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0,
                aci_conv_input_expr(&g->x, dy, ARG_T(g, 1), &l, ac_grad_shape(g, 0, 0),
                                    ac_grad_ndim(g, 0, 0)));
  if (ac_grad_needs(g, 1))
    ac_grad_set(g, 1,
                aci_conv_weight_expr(&g->x, dy, ARG_T(g, 0), &l, ac_grad_shape(g, 1, 0), n + 2));
  if (ac_grad_needs(g, 2)) ac_grad_set(g, 2, bias_grad(g, n));
}

/* x and y have swapped roles compared with a convolution. */
void aci_conv_transpose_grad(ac_grad *g, int n) {
  const aci_conv_lists l = {&g->args[3], &g->args[4], &g->args[7], ARG_I(g, 6)};
  ac_tensor *dy = g->dout[0];
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0,
                aci_conv_expr(&g->x, n, dy, ARG_T(g, 1), &l, ac_grad_shape(g, 0, 0),
                              ac_grad_ndim(g, 0, 0)));
  if (ac_grad_needs(g, 1))
    ac_grad_set(g, 1,
                aci_conv_weight_expr(&g->x, ARG_T(g, 0), dy, &l, ac_grad_shape(g, 1, 0), n + 2));
  if (ac_grad_needs(g, 2)) ac_grad_set(g, 2, bias_grad(g, n));
}
