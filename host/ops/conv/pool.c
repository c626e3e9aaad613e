/* Windows, shape rules and gradient rules of pools: see pool.h. */
#include "ops/conv/pool.h"

#include "ops/core/ctx_impl.h"

/* ---- windows ---- */
static ac_status adaptive_windows(const ac_frame *f, const aci_pool_args *a, aci_pool *p,
                                  ac_err *e) {
  int64_t out[ACI_POOL_DIMS];
  AC_TRY(aci_window_ints(f, a->kernel, p->n, 0, out, e));
  for (int i = 0; i < p->n; i++) {
    const int d = ACI_POOL_DIMS - p->n + i;
    if (out[i] == AC_INT_NONE) out[i] = p->in[d];
    p->out[d] = out[i];
    if (p->in[d] == 0 && out[i] > 0)
      return AC_FAIL(e, SHAPE, "an empty space cannot be pooled to an extent of %lld",
                     (long long)out[i]);
  }
  return AC_OK;
}

static ac_status fixed_windows(const ac_frame *f, const aci_pool_args *a, aci_pool *p, ac_err *e) {
  int64_t k[ACI_POOL_DIMS], stride[ACI_POOL_DIMS], pad[ACI_POOL_DIMS], dil[ACI_POOL_DIMS] = {1, 1};
  const bool ceil_mode = a->ceil >= 0 && ARG_B(f, a->ceil);
  AC_TRY(aci_window_ints(f, a->kernel, p->n, 1, k, e));
  if (ARG_NONE(f, a->kernel + 1)) memcpy(stride, k, sizeof k);
  else AC_TRY(aci_window_ints(f, a->kernel + 1, p->n, 1, stride, e));
  AC_TRY(aci_window_ints(f, a->kernel + 2, p->n, 0, pad, e));
  if (a->dilation >= 0) AC_TRY(aci_window_ints(f, a->dilation, p->n, 1, dil, e));
  for (int i = 0; i < p->n; i++) {
    const int d = ACI_POOL_DIMS - p->n + i;
    const int64_t span = dil[i] * (k[i] - 1) + 1;
    p->k[d] = k[i];
    p->stride[d] = stride[i];
    p->pad[d] = pad[i];
    p->dil[d] = dil[i];
    if (pad[i] > span / 2)
      return AC_FAIL(
          e, INVALID,
          "padding %lld is more than half of the window, which spans %lld: some windows would be "
          "all padding",
          (long long)pad[i], (long long)span);
    int64_t room = p->in[d] + 2 * pad[i] - span, out = 0;
    if (room >= 0 || ceil_mode) out = (room + (ceil_mode ? stride[i] - 1 : 0)) / stride[i] + 1;
    if (room < 0 && ceil_mode && room + stride[i] - 1 < 0) out = 0;
    /* the last window starts inside the input or its left padding */
    if (ceil_mode && out > 0 && (out - 1) * stride[i] >= p->in[d] + pad[i]) out--;
    if (out < 1 || p->in[d] == 0)
      return AC_FAIL(e, SHAPE,
                     "a window that spans %lld does not fit into %lld elements with padding %lld",
                     (long long)span, (long long)p->in[d], (long long)pad[i]);
    p->out[d] = out;
  }
  return AC_OK;
}

ac_status aci_pool_make(const ac_frame *f, const aci_pool_args *a, ac_dtype dt,
                        const int64_t *shape, int ndim, aci_pool *p, ac_err *e) {
  *p = (aci_pool){.dtype = dt,
                  .ct = aci_ctype_of(dt),
                  .n = a->n > 0 ? a->n : (int)ARG_I(f, a->space),
                  .in = {1, 1},
                  .out = {1, 1},
                  .k = {1, 1},
                  .stride = {1, 1},
                  .dil = {1, 1},
                  .adaptive = a->adaptive >= 0 ? ARG_B(f, a->adaptive) : a->is_adaptive};
  AC_CHECK(p->n >= 1 && p->n <= ACI_POOL_DIMS && ndim > p->n, e);
  for (int i = 0; i < p->n; i++) p->in[ACI_POOL_DIMS - p->n + i] = aci_space(shape, ndim, p->n)[i];
  p->planes = aci_space_batch(shape, ndim, p->n) * aci_space_channels(shape, ndim, p->n);
  if (p->adaptive) return adaptive_windows(f, a, p, e);
  AC_TRY(fixed_windows(f, a, p, e));
  if (a->count_pad < 0) return AC_OK;
  p->count_pad = ARG_B(f, a->count_pad);
  if (a->n == 1 || ARG_NONE(f, a->count_pad + 1)) return AC_OK;
  p->divisor = ARG_I(f, a->count_pad + 1);
  if (p->divisor == 0) return AC_FAIL(e, INVALID, "divisor_override must not be zero");
  return AC_OK;
}

ac_status aci_pool_push(ac_frame *f, const aci_pool *p, const int64_t *shape, int ndim, ac_dtype dt,
                        ac_err *e) {
  int64_t s[AC_MAX_DIMS];
  memcpy(s, shape, (size_t)ndim * 8);
  for (int i = 0; i < p->n; i++) s[ndim - p->n + i] = p->out[ACI_POOL_DIMS - p->n + i];
  return ac_frame_out(f, dt, ndim, s, e);
}

ac_status aci_pool_out(ac_frame *f, const aci_pool_args *a, aci_pool *p, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  AC_TRY(aci_window_input(f, x, a->n, e));
  AC_TRY(aci_pool_make(f, a, (ac_dtype)x->dtype, x->shape, x->ndim, p, e));
  return aci_pool_push(f, p, x->shape, x->ndim, (ac_dtype)x->dtype, e);
}

ac_status aci_pool_fits(const aci_pool *p, const ac_tensor *dy, const int64_t *shape, int ndim,
                        ac_err *e) {
  char a[128], b[128];
  bool ok = dy->ndim == ndim;
  for (int d = 0; ok && d < ndim - p->n; d++) ok = dy->shape[d] == shape[d];
  for (int i = 0; ok && i < p->n; i++)
    ok = dy->shape[ndim - p->n + i] == p->out[ACI_POOL_DIMS - p->n + i];
  if (ok) return AC_OK;
  return AC_FAIL(e, SHAPE, "a gradient of shape %s does not fit windows over %s",
                 aci_shape_str(dy->ndim, dy->shape, a, sizeof a),
                 aci_shape_str(ndim, shape, b, sizeof b));
}

/* ---- max ---- */
static ac_status max_shape(ac_frame *f, const aci_pool_args *a, int indices, ac_err *e) {
  aci_pool p;
  AC_TRY(aci_pool_out(f, a, &p, e));
  if (!ARG_B(f, indices)) return AC_OK;
  return aci_pool_push(f, &p, ARG_T(f, 0)->shape, ARG_T(f, 0)->ndim, AC_I64, e);
}
static ac_status max_run(ac_frame *f, const aci_pool_args *a, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  aci_pool p;
  AC_TRY(aci_pool_make(f, a, (ac_dtype)x->dtype, x->shape, x->ndim, &p, e));
  return aci_pool_max(f, &p, x, f->out[0], f->n_out > 1 ? f->out[1] : NULL, e);
}

ac_status aci_max_pool_shape(ac_frame *f, int n, ac_err *e) {
  const aci_pool_args a = aci_max_pool_args(n);
  return max_shape(f, &a, 6, e);
}
ac_status aci_max_pool_run(ac_frame *f, int n, ac_err *e) {
  const aci_pool_args a = aci_max_pool_args(n);
  return max_run(f, &a, e);
}
ac_status aci_adaptive_max_pool_shape(ac_frame *f, int n, ac_err *e) {
  const aci_pool_args a = aci_adaptive_pool_args(n);
  return max_shape(f, &a, 2, e);
}
ac_status aci_adaptive_max_pool_run(ac_frame *f, int n, ac_err *e) {
  const aci_pool_args a = aci_adaptive_pool_args(n);
  return max_run(f, &a, e);
}

#define LIST(v) (v)->ints, (v)->n
static const int64_t one = 1, zero = 0;

void aci_max_pool_grad(ac_grad *g, int n) {
  const ac_value *k = &g->args[1], *stride = ARG_NONE(g, 2) ? k : &g->args[2];
  if (g->dout[0] == NULL) return;
  ac_grad_set(g, 0,
              x_max_pool_backward(&g->x, g->dout[0], ARG_T(g, 0), LIST(k), LIST(stride),
                                  LIST(&g->args[3]), LIST(&g->args[4]), ARG_B(g, 5), false, n));
}
void aci_adaptive_max_pool_grad(ac_grad *g, int n) {
  if (g->dout[0] == NULL) return;
  ac_grad_set(g, 0,
              x_max_pool_backward(&g->x, g->dout[0], ARG_T(g, 0), LIST(&g->args[1]), &one, 1, &zero,
                                  1, &one, 1, false, true, n));
}

/* ---- averages ---- */
static ac_status avg_run(ac_frame *f, const aci_pool_args *a, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  aci_pool p;
  AC_TRY(aci_pool_make(f, a, (ac_dtype)x->dtype, x->shape, x->ndim, &p, e));
  return aci_pool_avg(f, &p, x, f->out[0], e);
}

ac_status aci_avg_pool_shape(ac_frame *f, int n, ac_err *e) {
  const aci_pool_args a = aci_avg_pool_args(n);
  aci_pool p;
  return aci_pool_out(f, &a, &p, e);
}
ac_status aci_avg_pool_run(ac_frame *f, int n, ac_err *e) {
  const aci_pool_args a = aci_avg_pool_args(n);
  return avg_run(f, &a, e);
}
ac_status aci_adaptive_avg_pool_shape(ac_frame *f, int n, ac_err *e) {
  const aci_pool_args a = aci_adaptive_pool_args(n);
  aci_pool p;
  return aci_pool_out(f, &a, &p, e);
}
ac_status aci_adaptive_avg_pool_run(ac_frame *f, int n, ac_err *e) {
  const aci_pool_args a = aci_adaptive_pool_args(n);
  return avg_run(f, &a, e);
}

void aci_avg_pool_grad(ac_grad *g, int n) {
  const ac_value *k = &g->args[1], *stride = ARG_NONE(g, 2) ? k : &g->args[2];
  const int64_t *divisor = n == 1 || ARG_NONE(g, 6) ? NULL : &g->args[6].i;
  ac_grad_set(g, 0,
              x_avg_pool_backward(&g->x, g->dout[0], ac_grad_shape(g, 0, 0), ac_grad_ndim(g, 0, 0),
                                  LIST(k), LIST(stride), LIST(&g->args[3]), ARG_B(g, 4),
                                  ARG_B(g, 5), divisor, false, n));
}
void aci_adaptive_avg_pool_grad(ac_grad *g, int n) {
  ac_grad_set(g, 0,
              x_avg_pool_backward(&g->x, g->dout[0], ac_grad_shape(g, 0, 0), ac_grad_ndim(g, 0, 0),
                                  LIST(&g->args[1]), &one, 1, &zero, 1, false, true, NULL, true,
                                  n));
}
