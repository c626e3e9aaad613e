/* layer_norm and rms_norm outside their kernels: the shape rules' checks and outputs, and the
 * backward in plain ops. */
#include "ops/core/ctx_impl.h"
#include "ops/norm/norm.h"

static ac_status check_rows(const ac_frame *f, int at, const ac_value *s, ac_err *e) {
  const ac_tensor *x = ARG_T(f, at);
  char a[128], b[128];
  bool ok = s->n > 0 && s->n <= x->ndim &&
            memcmp(x->shape + x->ndim - s->n, s->ints, 8 * (size_t)s->n) == 0;
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "%s must be floating point, not %s", aci_op_sig(f->op)->param[at].name,
                   ac_dtype_name((ac_dtype)x->dtype));
  if (!ok)
    return AC_FAIL(e, SHAPE, "a tensor of shape %s does not end in normalized_shape %s",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a),
                   aci_shape_str(s->n, s->ints, b, sizeof b));
  return AC_OK;
}

/* what, of dtype dt, is normalised. */
static ac_status check_param(const ac_frame *f, int param, const ac_value *s, const char *what,
                             ac_dtype dt, ac_err *e) {
  const ac_value *p = &f->args[param];
  char a[128], b[128];
  if (p->kind != AC_T_TENSOR) return AC_OK;
  const char *name = aci_op_sig(f->op)->param[param].name;
  if (p->tensor->ndim != s->n || memcmp(p->tensor->shape, s->ints, 8 * (size_t)s->n) != 0)
    return AC_FAIL(e, SHAPE, "%s has shape %s, normalized_shape is %s", name,
                   aci_shape_str(p->tensor->ndim, p->tensor->shape, a, sizeof a),
                   aci_shape_str(s->n, s->ints, b, sizeof b));
  if (p->tensor->dtype != dt && (p->tensor->dtype != AC_F32 || dt == AC_F64))
    return AC_FAIL(e, DTYPE, "%s is %s, but %s is %s; it must be of the same dtype, or f32", name,
                   ac_dtype_name((ac_dtype)p->tensor->dtype), what, ac_dtype_name(dt));
  return AC_OK;
}

ac_status aci_norm_check(const ac_frame *f, int at, int param, ac_err *e) {
  const ac_value *s = &f->args[at + 1];
  AC_TRY(check_rows(f, at, s, e));
  return check_param(f, param, s, "x", (ac_dtype)ARG_T(f, at)->dtype, e);
}

ac_status aci_norm_add_shape(ac_frame *f, bool rms, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *residual = ARG_T(f, 1);
  const ac_value *s = &f->args[2];
  const ac_dtype dt = ac_frame_promote(f, 0, 1);
  char a[128], b[128];
  if (!aci_same_shape(x, residual))
    return AC_FAIL(e, SHAPE,
                   "x has shape %s, residual has %s; they must be the same, nothing is broadcast",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a),
                   aci_shape_str(residual->ndim, residual->shape, b, sizeof b));
  for (int k = 0; k < 2; k++) AC_TRY(check_rows(f, k, s, e));
  for (int k = 0; k < (rms ? 1 : 2); k++) AC_TRY(check_param(f, 3 + k, s, "residual + x", dt, e));
  for (int k = 0; k < 2; k++) AC_TRY(ac_frame_out(f, dt, x->ndim, x->shape, e));
  return AC_OK;
}

static ac_status check_gradient(const ac_tensor *d, const ac_tensor *x, ac_err *e) {
  char a[128], b[128];
  if (aci_same_shape(d, x)) return AC_OK;
  return AC_FAIL(e, SHAPE, "the gradient has shape %s, x has %s",
                 aci_shape_str(d->ndim, d->shape, a, sizeof a),
                 aci_shape_str(x->ndim, x->shape, b, sizeof b));
}

ac_status aci_norm_backward_shape(ac_frame *f, bool rms, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 1);
  AC_TRY(aci_norm_check(f, 1, 3, e));
  AC_TRY(check_gradient(ARG_T(f, 0), x, e));
  if (!ARG_NONE(f, 5)) AC_TRY(check_gradient(ARG_T(f, 5), x, e));
  AC_TRY(ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e));
  for (int k = 0; !ARG_NONE(f, 3) && k < (rms ? 1 : 2); k++) {
    const ac_tensor *w = ARG_T(f, 3);
    AC_TRY(ac_frame_out(f, (ac_dtype)w->dtype, w->ndim, w->shape, e));
  }
  return AC_OK;
}

static ac_tensor *in_dtype(ac_expr *e, ac_tensor *t, const ac_tensor *like) {
  return t != NULL && t->dtype != like->dtype ? x_cast(e, t, (ac_dtype)like->dtype) : t;
}

int aci_norm_backward_plain(ac_expr *e, const ac_value *a, bool rms, ac_tensor **out) {
  ac_tensor *dy = a[0].tensor, *x = a[1].tensor, *w = a[3].kind == AC_T_TENSOR ? a[3].tensor : NULL;
  const ac_scalar one = aci_float(1);
  int64_t dims[AC_MAX_DIMS];
  const int n = a[2].n;
  for (int i = 0; i < n; i++) dims[i] = x->ndim - n + i;
#define ROW_MEAN(t) x_mean(e, t, dims, n, true, NULL)
  ac_tensor *d = rms ? x : x_sub(e, T(x), T(ROW_MEAN(x)), one);
  ac_tensor *rstd = x_rsqrt(e, x_add(e, T(ROW_MEAN(x_mul(e, T(d), T(d)))), F(a[4].f), one));
  ac_tensor *h = x_mul(e, T(d), T(rstd)), *g = w != NULL ? x_mul(e, T(dy), T(w)) : dy;
  ac_tensor *dx = x_sub(e, T(g), T(x_mul(e, T(h), T(ROW_MEAN(x_mul(e, T(g), T(h)))))), one);
  if (!rms) dx = x_sub(e, T(dx), T(ROW_MEAN(g)), one);
  dx = x_mul(e, T(dx), T(rstd));
  if (a[5].kind == AC_T_TENSOR) dx = x_add(e, T(dx), T(a[5].tensor), one);
#undef ROW_MEAN
  out[0] = in_dtype(e, dx, x);
  if (w == NULL) return 1;
  out[1] = in_dtype(e, x_sum_to(e, x_mul(e, T(dy), T(h)), w->shape, n), w);
  if (rms) return 2;
  out[2] = in_dtype(e, x_sum_to(e, dy, w->shape, n), w);
  return 3;
}
