/* instance_norm: y = (x - mean) / sqrt(var + eps) * weight + bias. mean and var (the mean square of the
   deviations) come from one channel of one sample. With use_input_stats = false they are the running ones, as in
   batch_norm. Otherwise the running ones, if given, become (1 - momentum) * running + momentum * the average over
   samples, with the variance divided by count - 1 instead of count.
   x (n, c, ...), running_mean, running_var, weight, bias (c) -> y (shape, dtype of x). Dtypes: floats.
   gradient: as for group_norm with one channel per group, or of batch_norm.
   example: accel.tensor({ { { 1.0, 3.0 }, { 10.0, 30.0 } } }):instance_norm() --> { { { -1, 1 }, { -1, 1 } } } */
#include "ops/norm/channel.h"

enum { X, MEAN, VAR, WEIGHT, BIAS, STATS, MOMENTUM, EPS };

static ac_tensor *tensor_of(const ac_value *v) { return v->kind == AC_T_TENSOR ? v->tensor : NULL; }

/* Average over the samples of a statistic per sample and channel, flat. */
static ac_tensor *over_samples(ac_expr *e, ac_tensor *t, const int64_t *nc) {
  const int64_t first = 0;
  return x_mean(e, x_reshape(e, t, nc, 2), &first, 1, false, NULL);
}

static void update(ac_expr *e, ac_tensor *x, ac_tensor *mean, ac_tensor *var, double momentum) {
  const int64_t n = x->shape[0], c = x->shape[1], count = n * c > 0 ? x->numel / (n * c) : 0;
  const int64_t nc[2] = {n, c}, flat[3] = {1, n * c, count};
  ac_tensor *m = NULL, *v = NULL;
  if (x->numel == 0) return;
  ac_tensor *same = ac_expr_own(e, aci_tensor_detach(x));
  x_batch_norm_train(e, x_reshape(e, same, flat, 3), NULL, NULL, 1, &m, &v);
  if (m == NULL || v == NULL) return; /* e has the reason */
  x_batch_norm_update_(e, mean, var, over_samples(e, m, nc), over_samples(e, v, nc), momentum,
                       count);
}

static int composed(ac_expr *e, const ac_value *a, ac_tensor **out) {
  ac_tensor *x = a[X].tensor, *mean = tensor_of(&a[MEAN]), *var = tensor_of(&a[VAR]),
            *w = tensor_of(&a[WEIGHT]), *b = tensor_of(&a[BIAS]);
  char s[128];
  if (!a[STATS].b) {
    if (mean == NULL || var == NULL)
      e->st = AC_FAIL(e->e, INVALID,
                      "with use_input_stats = false it needs running_mean and running_var");
    out[0] = x_batch_norm_infer(e, x, mean, var, w, b, a[EPS].f);
    return 1;
  }
  e->st = aci_channels_check(x, e->e);
  if (e->st == AC_OK && x->numel > 0 && x->numel == x->shape[0] * x->shape[1])
    e->st = AC_FAIL(e->e, SHAPE, "needs more than one value per sample and channel, got shape %s",
                    aci_shape_str(x->ndim, x->shape, s, sizeof s));
  if (e->st != AC_OK) return 0;
  out[0] = x_group_norm(e, x, x->shape[1] > 0 ? x->shape[1] : 1, w, b, a[EPS].f);
  if (out[0] != NULL && (mean != NULL || var != NULL)) update(e, x, mean, var, a[MOMENTUM].f);
  return 1;
}

AC_OP(
    instance_norm,
    .sig =
        "instance_norm(x: tensor, running_mean!: tensor?, running_var!: tensor?, weight: tensor?, bias: "
        "tensor?, "
        "use_input_stats: bool = true, momentum: float = 0.1, eps: float = 1e-5) -> tensor",
    .composed = composed);
