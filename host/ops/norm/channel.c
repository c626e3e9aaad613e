/* batch_norm and group_norm outside of their loops: checks, preparation, the choice of loops
 * (channel.h). */
#include "ops/norm/channel.h"

#include "ops/core/ctx_impl.h"
#include "ops/index/index.h"

/* Shorter runs of a batch go by columns. Of the longer ones, only those with many samples. */
enum { SHORT_RUN = 24, SHORT_RUN_OF_MANY = 96, MANY = 24 };

void aci_channels_extents(aci_channels *g, const ac_tensor *x, int64_t groups) {
  g->batch = groups == 0;
  g->groups = groups;
  g->n = x->shape[0];
  g->c = x->shape[1];
  g->l = 1;
  for (int d = 2; d < x->ndim; d++) g->l *= x->shape[d];
  g->n_sets = g->batch ? g->c : g->n * groups;
  g->n_runs = g->batch ? g->n : g->c / groups;
  g->members = g->n_runs * g->l;
  g->dt = (ac_dtype)x->dtype;
  g->ct = aci_ctype_of(g->dt);
}

ac_status aci_channels_check(const ac_tensor *x, ac_err *e) {
  char a[128];
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "x must be floating point, not %s", ac_dtype_name((ac_dtype)x->dtype));
  if (x->ndim < 2)
    return AC_FAIL(e, SHAPE, "x must be (samples, channels, ...), got shape %s",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a));
  return AC_OK;
}

ac_status aci_channels_param(const ac_frame *f, const ac_tensor *x, int param, bool any,
                             ac_err *e) {
  char a[128];
  if (ARG_NONE(f, param)) return AC_OK;
  const ac_tensor *p = ARG_T(f, param);
  const char *name = aci_op_sig(f->op)->param[param].name;
  if (p->ndim != 1 || p->shape[0] != x->shape[1])
    return AC_FAIL(e, SHAPE, "%s has shape %s, but there are %lld channels", name,
                   aci_shape_str(p->ndim, p->shape, a, sizeof a), (long long)x->shape[1]);
  if (any ? !ac_dtype_is_float((ac_dtype)p->dtype)
          : p->dtype != x->dtype && (p->dtype != AC_F32 || x->dtype == AC_F64))
    return AC_FAIL(e, DTYPE, "%s is %s, but x is %s; %s", name, ac_dtype_name((ac_dtype)p->dtype),
                   ac_dtype_name((ac_dtype)x->dtype),
                   any ? "it must be floating point" : "it must be of the same dtype, or f32");
  return AC_OK;
}

/* A parameter as c values of the compute type, or `missing` everywhere. */
static void fill(const aci_channels *g, const ac_value *v, double missing, void *dst) {
  if (v != NULL && v->kind == AC_T_TENSOR) {
    aci_elems_load(v->tensor, g->ct, 0, g->c, dst);
    return;
  }
  for (int64_t i = 0; i < g->c; i++)
    if (g->ct == ACI_C_F32) ((float *)dst)[i] = (float)missing;
    else ((double *)dst)[i] = missing;
}

/* Dispatch between the two ways: w and b are filled in, results are in y, dw and db. */
static ac_status work(ac_frame *f, aci_channels *g, const ac_value *weight, const ac_value *bias,
                      ac_err *e) {
  ac_block *block;
  size_t row = (size_t)g->c * aci_ctype_bytes(g->ct);
  AC_TRY(ac_block_alloc(f->device, 2 * row, AC_MEM_ACTIVATION, f->stream, &block, e));
  char *w = ac_block_ptr(block), *b = w + row;
  fill(g, weight, 1, w);
  fill(g, bias, 0, b);
  g->w = w;
  g->b = b;
  const bool columns = g->batch && (g->l < SHORT_RUN || (g->l < SHORT_RUN_OF_MANY && g->n >= MANY));
  ac_status st = columns ? aci_channel_column(f, g, e) : aci_channel_run(f, g, e);
  ac_block_free(block);
  return st;
}

ac_status aci_channels_forward(ac_frame *f, aci_channels *g, const ac_tensor *x,
                               const ac_value *weight, const ac_value *bias, double *mean,
                               double *var, ac_err *e) {
  const void *data;
  ac_block *block;
  g->mean = mean;
  g->var = var;
  g->want_stats = !g->given;
  if (x->numel == 0) {
    for (int64_t s = 0; s < g->n_sets && !g->given; s++) mean[s] = var[s] = 0;
    return AC_OK;
  }
  AC_TRY(aci_contiguous_data(f, x, &data, &block, e));
  g->x = data;
  g->y = aci_data(f->out[0]);
  ac_status st = work(f, g, weight, bias, e);
  ac_block_free(block);
  return st;
}

ac_status aci_channels_backward_shape(ac_frame *f, const ac_tensor *dy, const ac_tensor *x,
                                      int param, ac_err *e) {
  char a[128], b[128];
  const ac_dtype wide = x->dtype == AC_F64 ? AC_F64 : AC_F32;
  const ac_dtype dt = ARG_NONE(f, param) ? wide : (ac_dtype)ARG_T(f, param)->dtype;
  if (!aci_same_shape(dy, x))
    return AC_FAIL(e, SHAPE, "the gradient has shape %s, x has %s",
                   aci_shape_str(dy->ndim, dy->shape, a, sizeof a),
                   aci_shape_str(x->ndim, x->shape, b, sizeof b));
  AC_TRY(ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e));
  AC_TRY(ac_frame_out(f, dt, 1, x->shape + 1, e));
  return ac_frame_out(f, dt, 1, x->shape + 1, e);
}

ac_status aci_channels_backward(ac_frame *f, aci_channels *g, const ac_tensor *dy,
                                const ac_tensor *x, const ac_value *weight, const double *mean,
                                const double *var, ac_err *e) {
  const void *px, *pdy = NULL;
  ac_block *bx, *bdy = NULL, *stats = NULL;
  const size_t c = (size_t)g->c, sets = mean == NULL ? (size_t)g->n_sets : 0;
  AC_TRY(aci_contiguous_data(f, x, &px, &bx, e));
  ac_status st = aci_contiguous_data(f, dy, &pdy, &bdy, e);
  if (st == AC_OK)
    st = ac_block_alloc(f->device, (2 * c + 2 * sets + 1) * sizeof(double), AC_MEM_ACTIVATION,
                        f->stream, &stats, e);
  if (st == AC_OK) {
    g->dw = ac_block_ptr(stats);
    g->db = g->dw + c;
    g->mean = mean == NULL ? g->db + c : (double *)(uintptr_t)mean;
    g->var = mean == NULL ? g->mean + sets : (double *)(uintptr_t)var;
    g->want_stats = mean == NULL;
    g->x = px;
    g->dy = pdy;
    g->y = aci_data(f->out[0]);
    for (size_t i = 0; i < 2 * c; i++) g->dw[i] = 0;
    if (x->numel > 0) st = work(f, g, weight, NULL, e);
    for (int k = 1; k < 3 && st == AC_OK; k++)
      aci_elems_store(f->out[k], ACI_C_F64, 0, g->c, k == 1 ? g->dw : g->db);
  }
  ac_block_free(stats);
  ac_block_free(bdy);
  ac_block_free(bx);
  return st;
}

static ac_tensor *per_channel(ac_expr *e, const ac_value *v, int ndim) {
  int64_t s[AC_MAX_DIMS];
  for (int d = 0; d < ndim; d++) s[d] = d == 1 ? v->tensor->shape[0] : 1;
  return x_reshape(e, v->tensor, s, ndim);
}

ac_tensor *aci_channels_plain(ac_expr *e, ac_tensor *x, const int64_t *shape, int n_dims,
                              uint32_t mask, const ac_value *weight, const ac_value *bias,
                              double eps) {
  const ac_dtype dt = (ac_dtype)x->dtype, wide = dt == AC_F64 ? AC_F64 : AC_F32;
  const ac_scalar one = aci_float(1);
  const int ndim = x->ndim;
  int64_t dims[AC_MAX_DIMS], back[AC_MAX_DIMS];
  int n = 0;
  for (int d = 0; d < n_dims; d++)
    if (mask >> d & 1) dims[n++] = d;
  memcpy(back, x->shape, (size_t)ndim * 8);
  ac_tensor *v = x_reshape(e, dt != wide ? x_cast(e, x, wide) : x, shape, n_dims);
  ac_tensor *d = x_sub(e, T(v), T(x_mean(e, v, dims, n, true, NULL)), one);
  ac_tensor *var = x_mean(e, x_mul(e, T(d), T(d)), dims, n, true, NULL);
  ac_tensor *y = x_mul(e, T(d), T(x_rsqrt(e, x_add(e, T(var), F(eps), one))));
  y = x_reshape(e, y, back, ndim);
  if (weight->kind == AC_T_TENSOR) y = x_mul(e, T(y), T(per_channel(e, weight, ndim)));
  if (bias->kind == AC_T_TENSOR) y = x_add(e, T(y), T(per_channel(e, bias, ndim)), one);
  return y != NULL && y->dtype != dt ? x_cast(e, y, dt) : y;
}
