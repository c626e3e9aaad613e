/* rms_norm: y = x / sqrt(mean(x^2) + eps) * weight over the last dims, which must have the extents of
   normalized_shape. eps defaults to the machine epsilon of the compute type.
   x (..., normalized_shape), weight (normalized_shape) -> y (shape, dtype of x)
   gradient, with h = x * rstd and g = dy * weight: dx = rstd * (g - h * mean(g * h)), dweight = sum of dy *
   h over the rows, in one pass by rms_norm_backward.
   example: accel.rms_norm(accel.tensor { 3.0, 4 }, { 2 }, accel.tensor { 1.0, 2 }) --> { 0.848528, 2.262742 } */
#include "ops/norm/norm.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  AC_TRY(aci_norm_check(f, 0, 2, e));
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}
static ac_status cpu(ac_frame *f, ac_err *e) {
  return aci_norm_run(f, true, aci_norm_epsilon(&f->args[3], ARG_T(f, 0)->dtype), e);
}

static void grad(ac_grad *g) {
  ac_tensor *dweight = NULL;
  const ac_value *a = g->args;
  ac_tensor *w = ARG_NONE(g, 2) ? NULL : ARG_T(g, 2);
  double eps = aci_norm_epsilon(&a[3], ARG_T(g, 0)->dtype);
  ac_tensor *dx = x_rms_norm_backward(&g->x, g->dout[0], ARG_T(g, 0), a[1].ints, a[1].n, w, eps,
                                      NULL, &dweight);
  ac_grad_set(g, 0, dx);
  ac_grad_set(g, 2, dweight);
}

static int plain(ac_expr *e, const ac_value *a, ac_tensor **out) {
  ac_tensor *x = a[0].tensor;
  int64_t dims[AC_MAX_DIMS];
  int n = a[1].n;
  for (int i = 0; i < n; i++) dims[i] = x->ndim - n + i;
  ac_tensor *square = x_mean(e, x_mul(e, T(x), T(x)), dims, n, true, NULL);
  const double eps = aci_norm_epsilon(&a[3], x->dtype);
  ac_tensor *y = x_mul(e, T(x), T(x_rsqrt(e, x_add(e, T(square), F(eps), aci_float(1)))));
  if (a[2].kind == AC_T_TENSOR) y = x_mul(e, T(y), T(a[2].tensor));
  out[0] = y != NULL && y->dtype != x->dtype ? x_cast(e, y, (ac_dtype)x->dtype) : y;
  return 1;
}

static ac_status shape_backward(ac_frame *f, ac_err *e) {
  return aci_norm_backward_shape(f, true, e);
}
static ac_status cpu_backward(ac_frame *f, ac_err *e) {
  return aci_norm_backward_run(f, true, ARG_F(f, 4), e);
}
static int plain_backward(ac_expr *e, const ac_value *a, ac_tensor **out) {
  return aci_norm_backward_plain(e, a, true, out);
}

AC_OP(rms_norm,
      .sig = "rms_norm(x: tensor, normalized_shape: shape, weight: tensor?, eps: float?) -> tensor",
      .shape = shape, .cpu = cpu, .grad = grad, .composed = plain,
      .save = AC_SAVE_IN(0) | AC_SAVE_IN(2), .flops_per_element = 5);
AC_OP(
    rms_norm_backward,
    .sig =
        "rms_norm_backward(dy: tensor, x: tensor, normalized_shape: shape, weight: tensor?, eps: float, "
        "dsum: tensor?) -> (dx: tensor, dweight: tensor?)",
    .shape = shape_backward, .cpu = cpu_backward, .composed = plain_backward, .hidden = true,
    .flops_per_element = 10);
