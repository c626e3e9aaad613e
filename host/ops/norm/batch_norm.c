/* batch_norm: y = (x - mean) / sqrt(var + eps) * weight + bias per channel. In training mean and var (the mean
   square of the deviations) come from the batch, and the running ones, if given, are updated in place: running =
   (1 - momentum) * running + momentum * the batch's value, with the variance divided by count - 1 instead of
   count. Otherwise mean and var are the running ones.
   x (n, c, ...), running_mean, running_var, weight, bias (c) -> y (shape, dtype of x). Dtypes: floats. weight and
   bias may be f32 if x is bf16 or f16, the running statistics any.
   gradient, with h = (x - mean) * rstd and g = dy * weight: dx = rstd * (g - mean(g) - h * mean(g * h)) over the
   channel in training, rstd * g otherwise. dweight = sum of dy * h, dbias = sum of dy, by batch_norm_backward.
   example: accel.tensor({ { 1.0 }, { 3.0 } }):batch_norm { training = true } --> { { -1 }, { 1 } }
   example: local m = accel.zeros(1) accel.tensor({ { 1.0 }, { 3.0 } }):batch_norm(m, { training = true }) return m --> { 0.2 }
   example: accel.tensor({ { 1.0 } }):batch_norm(accel.zeros(1), accel.full({ 1 }, 4.0)) --> { { 0.5 } } */
#include "ops/core/ctx_impl.h"
#include "ops/index/index.h"
#include "ops/norm/channel.h"

/* ---- training ---- */
enum { T_X, T_WEIGHT, T_BIAS, T_EPS };

static ac_status train_shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, T_X);
  char a[128];
  AC_TRY(aci_channels_check(x, e));
  AC_TRY(aci_channels_param(f, x, T_WEIGHT, false, e));
  AC_TRY(aci_channels_param(f, x, T_BIAS, false, e));
  if (x->numel > 0 && x->numel == x->shape[1])
    return AC_FAIL(e, SHAPE, "training needs more than one value per channel, got shape %s",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a));
  AC_TRY(ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e));
  AC_TRY(ac_frame_out(f, AC_F64, 1, x->shape + 1, e));
  return ac_frame_out(f, AC_F64, 1, x->shape + 1, e);
}

static ac_status train_cpu(ac_frame *f, ac_err *e) {
  aci_channels g = {.eps = ARG_F(f, T_EPS)};
  aci_channels_extents(&g, ARG_T(f, T_X), 0);
  return aci_channels_forward(f, &g, ARG_T(f, T_X), &f->args[T_WEIGHT], &f->args[T_BIAS],
                              aci_data(f->out[1]), aci_data(f->out[2]), e);
}

/* Sets the gradients of x, weight and bias (the latter two at `param` and after it). */
static void give(ac_grad *g, int param, ac_tensor *mean, ac_tensor *var, double eps,
                 bool training) {
  ac_tensor *dw = NULL, *db = NULL, *w = ARG_NONE(g, param) ? NULL : ARG_T(g, param);
  ac_tensor *dx =
      x_batch_norm_backward(&g->x, g->dout[0], ARG_T(g, 0), mean, var, w, eps, training, &dw, &db);
  ac_grad_set(g, 0, dx);
  if (w != NULL) ac_grad_set(g, param, dw);
  if (!ARG_NONE(g, param + 1)) ac_grad_set(g, param + 1, ac_grad_reduce_to(g, param + 1, db));
}

/* The statistics are not public: no gradient comes to them. */
static void train_grad(ac_grad *g) {
  if (g->dout[0] != NULL) give(g, T_WEIGHT, g->out[1], g->out[2], ARG_F(g, T_EPS), true);
}

static int train_plain(ac_expr *e, const ac_value *a, ac_tensor **out) {
  ac_tensor *x = a[T_X].tensor;
  uint32_t all = (uint32_t)((1ull << x->ndim) - 1) & ~2u;
  out[0] = aci_channels_plain(e, x, x->shape, x->ndim, all, &a[T_WEIGHT], &a[T_BIAS], a[T_EPS].f);
  return 1;
}

/* ---- evaluation ---- */
enum { I_X, I_MEAN, I_VAR, I_WEIGHT, I_BIAS, I_EPS };

static ac_status infer_shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, I_X);
  AC_TRY(aci_channels_check(x, e));
  for (int i = I_MEAN; i <= I_BIAS; i++) AC_TRY(aci_channels_param(f, x, i, i <= I_VAR, e));
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}

/* mean and var (two arguments from `at` on) as doubles, freed with the block. */
static ac_status constants(ac_frame *f, int at, double **mean, ac_block **block, ac_err *e) {
  const int64_t c = ARG_T(f, at)->numel;
  AC_TRY(ac_block_alloc(f->device, (size_t)(2 * c + 1) * sizeof(double), AC_MEM_ACTIVATION,
                        f->stream, block, e));
  *mean = ac_block_ptr(*block);
  for (int i = 0; i < 2; i++) aci_elems_load(ARG_T(f, at + i), ACI_C_F64, 0, c, *mean + i * c);
  return AC_OK;
}

static ac_status infer_cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, I_X);
  aci_channels g = {.eps = ARG_F(f, I_EPS), .given = true};
  ac_block *block;
  double *mean;
  aci_channels_extents(&g, x, 0);
  AC_TRY(constants(f, I_MEAN, &mean, &block, e));
  ac_status st =
      aci_channels_forward(f, &g, x, &f->args[I_WEIGHT], &f->args[I_BIAS], mean, mean + g.c, e);
  ac_block_free(block);
  return st;
}

static void infer_grad(ac_grad *g) {
  give(g, I_WEIGHT, ARG_T(g, I_MEAN), ARG_T(g, I_VAR), ARG_F(g, I_EPS), false);
}

static int infer_plain(ac_expr *e, const ac_value *a, ac_tensor **out) {
  ac_tensor *x = a[I_X].tensor;
  const ac_dtype dt = (ac_dtype)x->dtype, wide = dt == AC_F64 ? AC_F64 : AC_F32;
  ac_tensor *p[4];
  int64_t s[AC_MAX_DIMS];
  for (int d = 0; d < x->ndim; d++) s[d] = d == 1 ? x->shape[1] : 1;
  for (int i = 0; i < 4; i++) {
    p[i] =
        a[I_MEAN + i].kind == AC_T_TENSOR ? x_reshape(e, a[I_MEAN + i].tensor, s, x->ndim) : NULL;
    if (p[i] != NULL && p[i]->dtype != wide) p[i] = x_cast(e, p[i], wide);
  }
  ac_tensor *rstd = x_rsqrt(e, x_add(e, T(p[1]), F(a[I_EPS].f), aci_float(1)));
  ac_tensor *y = x_sub(e, T(dt != wide ? x_cast(e, x, wide) : x), T(p[0]), aci_float(1));
  y = x_mul(e, T(y), T(p[2] != NULL ? x_mul(e, T(rstd), T(p[2])) : rstd));
  if (p[3] != NULL) y = x_add(e, T(y), T(p[3]), aci_float(1));
  out[0] = y != NULL && dt != wide ? x_cast(e, y, dt) : y;
  return 1;
}

/* ---- backward of both ---- */
enum { B_DY, B_X, B_MEAN, B_VAR, B_WEIGHT, B_EPS, B_TRAINING };

static ac_status back_shape(ac_frame *f, ac_err *e) {
  return aci_channels_backward_shape(f, ARG_T(f, B_DY), ARG_T(f, B_X), B_WEIGHT, e);
}

static ac_status back_cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, B_X);
  aci_channels g = {.eps = ARG_F(f, B_EPS), .given = !ARG_B(f, B_TRAINING)};
  ac_block *block;
  double *mean;
  aci_channels_extents(&g, x, 0);
  AC_TRY(constants(f, B_MEAN, &mean, &block, e));
  ac_status st =
      aci_channels_backward(f, &g, ARG_T(f, B_DY), x, &f->args[B_WEIGHT], mean, mean + g.c, e);
  ac_block_free(block);
  return st;
}

/* ---- running statistics ---- */
enum { U_MEAN, U_VAR, U_BATCH_MEAN, U_BATCH_VAR, U_MOMENTUM, U_COUNT };

static ac_status update_shape(ac_frame *f, ac_err *e) {
  char a[128];
  for (int i = U_MEAN; i <= U_VAR; i++) {
    if (ARG_NONE(f, i)) continue;
    const ac_tensor *t = ARG_T(f, i), *batch = ARG_T(f, U_BATCH_MEAN);
    const char *name = i == U_MEAN ? "running_mean" : "running_var";
    if (!aci_same_shape(t, batch))
      return AC_FAIL(e, SHAPE, "%s has shape %s, but there are %lld channels", name,
                     aci_shape_str(t->ndim, t->shape, a, sizeof a), (long long)batch->numel);
    if (!ac_dtype_is_float((ac_dtype)t->dtype))
      return AC_FAIL(e, DTYPE, "%s must be floating point, not %s", name,
                     ac_dtype_name((ac_dtype)t->dtype));
  }
  return AC_OK;
}

static ac_status update_cpu(ac_frame *f, ac_err *e) {
  const double m = ARG_F(f, U_MOMENTUM), count = (double)ARG_I(f, U_COUNT);
  (void)e;
  for (int i = U_MEAN; i <= U_VAR && count > 0; i++) {
    if (ARG_NONE(f, i)) continue;
    const ac_tensor *t = ARG_T(f, i), *batch = ARG_T(f, i + 2);
    const double factor = i == U_MEAN ? m : m * (count / (count - 1));
    for (int64_t c = 0; c < t->numel; c++) {
      double old, now;
      aci_elems_load(t, ACI_C_F64, c, 1, &old);
      aci_elems_load(batch, ACI_C_F64, c, 1, &now);
      now = (1 - m) * old + factor * now;
      aci_elems_store(t, ACI_C_F64, c, 1, &now);
    }
  }
  return AC_OK;
}

/* ---- the op ---- */
enum { X, MEAN, VAR, WEIGHT, BIAS, TRAINING, MOMENTUM, EPS };

static ac_tensor *tensor_of(const ac_value *v) { return v->kind == AC_T_TENSOR ? v->tensor : NULL; }

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *in = a[X].tensor, *mean = NULL, *var = NULL, *w = tensor_of(&a[WEIGHT]),
            *b = tensor_of(&a[BIAS]), *running_mean = tensor_of(&a[MEAN]),
            *running_var = tensor_of(&a[VAR]);
  if (!a[TRAINING].b) {
    if (running_mean == NULL || running_var == NULL)
      x->st =
          AC_FAIL(x->e, INVALID, "without training = true it needs running_mean and running_var");
    out[0] = x_batch_norm_infer(x, in, running_mean, running_var, w, b, a[EPS].f);
    return 1;
  }
  if (!(a[EPS].f > 0)) { /* as PyTorch: a channel of equal values would be divided by 0 */
    x->st = AC_FAIL(x->e, INVALID, "eps must be positive during training, got %g", a[EPS].f);
    return 1;
  }
  out[0] = x_batch_norm_train(x, in, w, b, a[EPS].f, &mean, &var);
  if (out[0] == NULL || (running_mean == NULL && running_var == NULL)) return 1;
  /* without their history: the running statistics are not part of the graph */
  if (mean == NULL || var == NULL) return 1;
  mean = ac_expr_own(x, aci_tensor_detach(mean));
  var = ac_expr_own(x, aci_tensor_detach(var));
  int64_t count = in->shape[1] > 0 ? in->numel / in->shape[1] : 0;
  x_batch_norm_update_(x, running_mean, running_var, mean, var, a[MOMENTUM].f, count);
  return 1;
}

AC_OP(
    batch_norm,
    .sig =
        "batch_norm(x: tensor, running_mean!: tensor?, running_var!: tensor?, weight: tensor?, bias: "
        "tensor?, "
        "training: bool = false, momentum: float = 0.1, eps: float = 1e-5) -> tensor",
    .composed = composed);
AC_OP(batch_norm_train,
      .sig = "batch_norm_train(x: tensor, weight: tensor?, bias: tensor?, eps: float) -> "
             "(out: tensor, mean: tensor, var: tensor)",
      .shape = train_shape, .cpu = train_cpu, .grad = train_grad, .composed = train_plain,
      .save = AC_SAVE_IN(0) | AC_SAVE_IN(1) | AC_SAVE_OUT(1) | AC_SAVE_OUT(2), .hidden = true,
      .flops_per_element = 8);
AC_OP(
    batch_norm_infer,
    .sig =
        "batch_norm_infer(x: tensor, mean: tensor, var: tensor, weight: tensor?, bias: tensor?, eps: "
        "float) -> "
        "tensor",
    .shape = infer_shape, .cpu = infer_cpu, .grad = infer_grad, .composed = infer_plain,
    .save = AC_SAVE_IN(0) | AC_SAVE_IN(1) | AC_SAVE_IN(2) | AC_SAVE_IN(3), .hidden = true,
    .flops_per_element = 4);
AC_OP(
    batch_norm_backward,
    .sig =
        "batch_norm_backward(dy: tensor, x: tensor, mean: tensor, var: tensor, weight: tensor?, eps: float, "
        "training: bool) -> (dx: tensor, dweight: tensor, dbias: tensor)",
    .shape = back_shape, .cpu = back_cpu, .hidden = true, .flops_per_element = 16);
AC_OP(
    batch_norm_update_,
    .sig =
        "batch_norm_update_(running_mean!: tensor?, running_var!: tensor?, mean: tensor, var: tensor, "
        "momentum: float, count: int) -> ()",
    .shape = update_shape, .cpu = update_cpu, .hidden = true, .nondiff = true);
