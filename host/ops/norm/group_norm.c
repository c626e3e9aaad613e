/* group_norm: y = (x - mean) / sqrt(var + eps) * weight + bias. mean and var (the mean square of the deviations)
   come from a sample's group of c / num_groups neighbouring channels.
   x (n, c, ...), weight, bias (c) -> y (shape, dtype of x). num_groups divides c. Dtypes: floats.
   gradient, with h = (x - mean) * rstd and g = dy * weight: dx = rstd * (g - mean(g) - h * mean(g * h)) over the
   group, dweight = sum of dy * h, dbias = sum of dy over samples and positions, in one op, group_norm_backward.
   example: accel.tensor({ { 1.0, 3.0, 10.0, 30.0 } }):group_norm(2) --> { { -1, 1, -1, 1 } }
   example: accel.tensor({ { 1.0, 3.0 } }):group_norm(1, accel.full({ 2 }, 2.0)) --> { { -2, 2 } } */
#include "ops/norm/channel.h"

enum { X, GROUPS, WEIGHT, BIAS, EPS };
enum { B_DY, B_X, B_GROUPS, B_WEIGHT, B_EPS };

static ac_status check(const ac_frame *f, int at, int n_params, ac_err *e) {
  const ac_tensor *x = ARG_T(f, at);
  const int64_t groups = ARG_I(f, at + 1);
  char a[128];
  AC_TRY(aci_channels_check(x, e));
  if (groups < 1 || x->shape[1] % groups != 0)
    return AC_FAIL(e, SHAPE, "num_groups %lld does not divide the %lld channels of x %s",
                   (long long)groups, (long long)x->shape[1],
                   aci_shape_str(x->ndim, x->shape, a, sizeof a));
  if (x->numel == groups) /* the normalised element would be 0, whatever it was */
    return AC_FAIL(e, SHAPE, "needs more than one value per group, got shape %s in %lld groups",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a), (long long)groups);
  for (int i = 0; i < n_params; i++) AC_TRY(aci_channels_param(f, x, at + 2 + i, false, e));
  return AC_OK;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, X);
  AC_TRY(check(f, X, 2, e));
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, X);
  aci_channels g = {.eps = ARG_F(f, EPS)};
  ac_block *stats;
  aci_channels_extents(&g, x, ARG_I(f, GROUPS));
  AC_TRY(ac_block_alloc(f->device, (size_t)(2 * g.n_sets + 1) * sizeof(double), AC_MEM_ACTIVATION,
                        f->stream, &stats, e));
  double *mean = ac_block_ptr(stats);
  ac_status st =
      aci_channels_forward(f, &g, x, &f->args[WEIGHT], &f->args[BIAS], mean, mean + g.n_sets, e);
  ac_block_free(stats);
  return st;
}

static void grad(ac_grad *g) {
  ac_tensor *dw = NULL, *db = NULL, *dy = g->dout[0];
  ac_tensor *w = ARG_NONE(g, WEIGHT) ? NULL : ARG_T(g, WEIGHT);
  ac_tensor *dx =
      x_group_norm_backward(&g->x, dy, ARG_T(g, X), ARG_I(g, GROUPS), w, ARG_F(g, EPS), &dw, &db);
  ac_grad_set(g, X, dx);
  if (w != NULL) ac_grad_set(g, WEIGHT, dw);
  if (!ARG_NONE(g, BIAS)) ac_grad_set(g, BIAS, ac_grad_reduce_to(g, BIAS, db));
}

static int plain(ac_expr *e, const ac_value *a, ac_tensor **out) {
  ac_tensor *x = a[X].tensor;
  const int64_t groups = a[GROUPS].i;
  const int rest = x->ndim - 2;
  int64_t s[AC_MAX_DIMS] = {x->shape[0], groups, x->shape[1] / groups};
  if (x->ndim == AC_MAX_DIMS) {
    e->st = AC_FAIL(e->e, SHAPE, "second derivatives need fewer than %d dims", AC_MAX_DIMS);
    return 0;
  }
  memcpy(s + 3, x->shape + 2, (size_t)rest * 8);
  out[0] = aci_channels_plain(e, x, s, x->ndim + 1, aci_norm_mask(x->ndim + 1, x->ndim - 1),
                              &a[WEIGHT], &a[BIAS], a[EPS].f);
  return 1;
}

static ac_status shape_backward(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = ARG_T(f, B_DY), *x = ARG_T(f, B_X);
  AC_TRY(check(f, B_X, 1, e));
  return aci_channels_backward_shape(f, dy, x, B_WEIGHT, e);
}

static ac_status cpu_backward(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, B_X);
  aci_channels g = {.eps = ARG_F(f, B_EPS)};
  aci_channels_extents(&g, x, ARG_I(f, B_GROUPS));
  return aci_channels_backward(f, &g, ARG_T(f, B_DY), x, &f->args[B_WEIGHT], NULL, NULL, e);
}

AC_OP(
    group_norm,
    .sig =
        "group_norm(x: tensor, num_groups: int, weight: tensor?, bias: tensor?, eps: float = 1e-5) -> tensor",
    .shape = shape, .cpu = cpu, .grad = grad, .composed = plain,
    .save = AC_SAVE_IN(0) | AC_SAVE_IN(2), .flops_per_element = 8);
AC_OP(
    group_norm_backward,
    .sig =
        "group_norm_backward(dy: tensor, x: tensor, num_groups: int, weight: tensor?, eps: float) -> "
        "(dx: tensor, dweight: tensor, dbias: tensor)",
    .shape = shape_backward, .cpu = cpu_backward, .hidden = true, .flops_per_element = 16);
