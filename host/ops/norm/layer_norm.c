/* layer_norm: y = (x - mean) / sqrt(var + eps) * weight + bias over the last dims, which must have the
   extents of normalized_shape. var is the mean square of the deviations.
   x (..., normalized_shape), weight, bias (normalized_shape) -> y (shape, dtype of x)
   gradient, with h = (x - mean) * rstd and g = dy * weight: dx = rstd * (g - mean(g) - h * mean(g * h)),
   dweight = sum of dy * h, dbias = sum of dy over the rows, in one pass by layer_norm_backward.
   example: accel.layer_norm(accel.tensor { 1.0, 2, 3 }, { 3 }) --> { -1.224736, 0, 1.224736 }
   example: accel.layer_norm(accel.tensor { 1.0, 3 }, { 2 }, accel.tensor { 2.0, 4 }) --> { -1.99999, 3.99998 } */
#include "ops/norm/norm.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  AC_TRY(aci_norm_check(f, 0, 2, e));
  AC_TRY(aci_norm_check(f, 0, 3, e));
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}
static ac_status cpu(ac_frame *f, ac_err *e) { return aci_norm_run(f, false, ARG_F(f, 4), e); }

static void grad(ac_grad *g) {
  ac_tensor *more[2] = {NULL, NULL}, *dy = g->dout[0];
  const ac_value *a = g->args;
  ac_tensor *w = ARG_NONE(g, 2) ? NULL : ARG_T(g, 2);
  ac_tensor *dx = x_layer_norm_backward(&g->x, dy, ARG_T(g, 0), a[1].ints, a[1].n, w, ARG_F(g, 4),
                                        NULL, &more[0], &more[1]);
  ac_grad_set(g, 0, dx);
  ac_grad_set(g, 2, more[0]);
  if (!ARG_NONE(g, 3)) ac_grad_set(g, 3, w != NULL ? more[1] : ac_grad_reduce_to(g, 3, dy));
}

static int plain(ac_expr *e, const ac_value *a, ac_tensor **out) {
  ac_tensor *x = a[0].tensor;
  ac_scalar one = aci_float(1);
  int64_t dims[AC_MAX_DIMS];
  int n = a[1].n;
  for (int i = 0; i < n; i++) dims[i] = x->ndim - n + i;
  ac_tensor *d = x_sub(e, T(x), T(x_mean(e, x, dims, n, true, NULL)), one);
  ac_tensor *var = x_mean(e, x_mul(e, T(d), T(d)), dims, n, true, NULL);
  ac_tensor *y = x_mul(e, T(d), T(x_rsqrt(e, x_add(e, T(var), F(a[4].f), one))));
  if (a[2].kind == AC_T_TENSOR) y = x_mul(e, T(y), T(a[2].tensor));
  if (a[3].kind == AC_T_TENSOR) y = x_add(e, T(y), T(a[3].tensor), one);
  out[0] = y != NULL && y->dtype != x->dtype ? x_cast(e, y, (ac_dtype)x->dtype) : y;
  return 1;
}

static ac_status shape_backward(ac_frame *f, ac_err *e) {
  return aci_norm_backward_shape(f, false, e);
}
static ac_status cpu_backward(ac_frame *f, ac_err *e) {
  return aci_norm_backward_run(f, false, ARG_F(f, 4), e);
}
static int plain_backward(ac_expr *e, const ac_value *a, ac_tensor **out) {
  return aci_norm_backward_plain(e, a, false, out);
}

AC_OP(
    layer_norm,
    .sig =
        "layer_norm(x: tensor, normalized_shape: shape, weight: tensor?, bias: tensor?, eps: float = "
        "1e-5) -> tensor",
    .shape = shape, .cpu = cpu, .grad = grad, .composed = plain,
    .save = AC_SAVE_IN(0) | AC_SAVE_IN(2), .flops_per_element = 8);
AC_OP(
    layer_norm_backward,
    .sig =
        "layer_norm_backward(dy: tensor, x: tensor, normalized_shape: shape, weight: tensor?, eps: float, "
        "dsum: tensor?) -> (dx: tensor, dweight: tensor?, dbias: tensor?)",
    .shape = shape_backward, .cpu = cpu_backward, .composed = plain_backward, .hidden = true,
    .flops_per_element = 16);
