/* cross_entropy: l[i] = sum over classes of w[c] * q[i,c] * (ln(sum of e^input[i]) - input[i,c]), from logits. No
   matrix of probabilities is kept. Target classes give q = 1 at the class, label_smoothing s makes it (1 - s) q +
   s / C. Elements with class ignore_index count nothing. mean divides by the sum of w[target] (classes) or by the
   number of elements (probabilities).
   input (C) | (N, C) | (N, C, d1, ...), target () | (N) | (N, d1, ...) i64 or i32, or probabilities as input,
   weight (C) -> () | like a target of classes with reduction = none, f32 under autocast
   gradient: dinput = dl * (softmax(input) * sum(w q) - w q), in one pass by cross_entropy_backward. Probabilities
   get dtarget as well.
   example: accel.cross_entropy(accel.tensor { { 0.0, 1, 2 }, { 3, 0, 0 } }, accel.tensor { 2, 0 }) --> 0.251264
   example: accel.cross_entropy(accel.zeros(2, 4), accel.tensor { 1, 3 }, { reduction = "none" }) --> { 1.386294, 1.386294 } */
#include "ops/loss/cross_entropy.h"

#include "ops/core/ctx_impl.h"

/* Axis of classes. */
static int class_dim(const ac_tensor *input) { return input->ndim > 1 ? 1 : 0; }
static bool by_class(const ac_tensor *target) {
  return !ac_dtype_is_float((ac_dtype)target->dtype);
}

ac_status aci_ce_check_options(const ac_tensor *weight, int64_t n_classes, double smoothing,
                               ac_err *e) {
  char a[128];
  if (weight != NULL && (weight->ndim != 1 || weight->shape[0] != n_classes))
    return AC_FAIL(e, SHAPE, "weight of shape %s does not fit %lld classes",
                   aci_shape_str(weight->ndim, weight->shape, a, sizeof a), (long long)n_classes);
  if (weight != NULL && !ac_dtype_is_float((ac_dtype)weight->dtype))
    return AC_FAIL(e, DTYPE, "weight must be floating point, not %s",
                   ac_dtype_name((ac_dtype)weight->dtype));
  if (!(smoothing >= 0 && smoothing <= 1))
    return AC_FAIL(e, INVALID, "label_smoothing %g is not between 0 and 1", smoothing);
  return AC_OK;
}

static ac_status check(const ac_frame *f, int at, ac_err *e) {
  const ac_tensor *x = ARG_T(f, at), *t = ARG_T(f, at + 1);
  const ac_tensor *w = ARG_NONE(f, at + 2) ? NULL : ARG_T(f, at + 2);
  char a[128], b[128];
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "input must be floating point, not %s",
                   ac_dtype_name((ac_dtype)x->dtype));
  if (x->ndim == 0) return AC_FAIL(e, SHAPE, "input has no dim of classes: its rank is 0");
  if (t->dtype != AC_I64 && t->dtype != AC_I32 && !ac_dtype_is_float((ac_dtype)t->dtype))
    return AC_FAIL(
        e, DTYPE,
        "target has to hold classes (i64 or i32) or probabilities (floating point), not %s",
        ac_dtype_name((ac_dtype)t->dtype));
  int d = class_dim(x), n = 0;
  int64_t want[AC_MAX_DIMS];
  for (int i = 0; i < x->ndim; i++)
    if (i != d || !by_class(t)) want[n++] = x->shape[i];
  if (!by_class(t) && t->ndim == x->ndim - 1)
    return AC_FAIL(e, DTYPE,
                   "class labels must be integers (i64), got %s of shape %s for input of shape %s "
                   "(floating point targets are probabilities, of the shape of input)",
                   ac_dtype_name((ac_dtype)t->dtype), aci_shape_str(t->ndim, t->shape, a, sizeof a),
                   aci_shape_str(x->ndim, x->shape, b, sizeof b));
  if (t->ndim != n || memcmp(t->shape, want, 8 * (size_t)n) != 0)
    return AC_FAIL(e, SHAPE, "target of shape %s does not fit input of shape %s",
                   aci_shape_str(t->ndim, t->shape, a, sizeof a),
                   aci_shape_str(x->ndim, x->shape, b, sizeof b));
  AC_TRY(aci_ce_check_options(w, x->shape[d], ARG_F(f, at + 5), e));
  if (!by_class(t) && ARG_I(f, at + 3) >= 0)
    return AC_FAIL(e, INVALID,
                   "ignore_index is for targets that are classes; these are probabilities");
  return AC_OK;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(check(f, 0, e));
  const ac_tensor *x = ARG_T(f, 0);
  int64_t s[AC_MAX_DIMS];
  int n = 0;
  /* autocast keeps the loss in f32. The logits are read directly */
  ac_dtype dt = f->autocast && x->dtype != AC_F64 ? AC_F32 : (ac_dtype)x->dtype;
  if (ARG_I(f, 4) == AC_CROSS_ENTROPY_REDUCTION_NONE)
    n = aci_reduce_shape(x, 1u << class_dim(x), false, s);
  return ac_frame_out(f, dt, n, s, e);
}
static ac_status cpu(ac_frame *f, ac_err *e) {
  return aci_ce_run(f, 1u << class_dim(ARG_T(f, 0)), e);
}

static ac_status shape_backward(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = ARG_T(f, 0), *x = ARG_T(f, 1);
  int64_t s[AC_MAX_DIMS];
  char a[128];
  AC_TRY(check(f, 1, e));
  int n = ARG_I(f, 5) == AC_CROSS_ENTROPY_REDUCTION_NONE
              ? aci_reduce_shape(x, 1u << class_dim(x), false, s)
              : 0;
  if (dy->ndim != n || memcmp(dy->shape, s, 8 * (size_t)n) != 0)
    return AC_FAIL(e, SHAPE, "a gradient of shape %s does not fit the loss",
                   aci_shape_str(dy->ndim, dy->shape, a, sizeof a));
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}
static ac_status cpu_backward(ac_frame *f, ac_err *e) {
  return aci_ce_run_backward(f, 1u << class_dim(ARG_T(f, 1)), e);
}

/* ---- the same of plain ops ---- */
typedef struct parts {
  ac_tensor *q;     /* weighted and smoothed target, of the shape of input */
  ac_tensor *total; /* the divisor of mean. NULL: the number of elements */
} parts;

static parts target_parts(ac_expr *e, const ac_value *a) {
  ac_tensor *x = a[0].tensor, *t = a[1].tensor, *w = NULL, *keep = NULL;
  const int d = class_dim(x);
  const double smooth = a[5].f, each = smooth / (double)x->shape[d];
  int64_t s[AC_MAX_DIMS];
  parts p = {t, NULL};
  if (a[2].kind == AC_T_TENSOR) {
    for (int i = 0; i < x->ndim; i++) s[i] = i == d ? x->shape[d] : 1;
    w = x_reshape(e, a[2].tensor, s, x->ndim);
  }
  if (by_class(t)) {
    ac_operand ignore = ac_operand_int(a[3].i);
    memcpy(s, x->shape, 8 * (size_t)x->ndim);
    s[d] = 1;
    ac_tensor *index = x_reshape(e, t, s, x->ndim);
    keep = x_cast(e, x_ne(e, T(index), ignore), (ac_dtype)x->dtype);
    index = x_masked_fill(e, index, x_eq(e, T(index), ignore), ac_operand_int(0));
    p.q = x_gather_backward(e, keep, d, index, x->shape, x->ndim);
    p.total = x_sum(e, w != NULL ? x_mul(e, T(p.q), T(w)) : p.q, NULL, 0, false, NULL);
  }
  if (smooth > 0) {
    ac_tensor *rest = x_mul(e, T(p.q), F(1 - smooth));
    p.q = x_add(e, T(rest), keep != NULL ? T(x_mul(e, T(keep), F(each))) : F(each), aci_float(1));
  }
  if (w != NULL) p.q = x_mul(e, T(p.q), T(w));
  return p;
}

static int plain(ac_expr *e, const ac_value *a, ac_tensor **out) {
  ac_tensor *x = a[0].tensor;
  const int64_t d = class_dim(x);
  parts p = target_parts(e, a);
  ac_tensor *logp = x_log_softmax(e, x, d, NULL);
  ac_tensor *terms =
      x_where(e, x_eq(e, T(p.q), F(0)), F(0), T(x_mul(e, T(p.q), T(logp)))); /* 0 * ln 0 is 0 */
  ac_tensor *rows = x_neg(e, x_sum(e, terms, &d, 1, false, NULL));
  if (a[4].i != AC_CROSS_ENTROPY_REDUCTION_NONE && rows != NULL) {
    double count = (double)rows->numel;
    rows = x_sum(e, rows, NULL, 0, false, NULL);
    if (a[4].i == AC_CROSS_ENTROPY_REDUCTION_MEAN)
      rows = x_div(e, T(rows), p.total != NULL ? T(p.total) : F(count));
  }
  out[0] = rows != NULL && rows->dtype != x->dtype ? x_cast(e, rows, (ac_dtype)x->dtype) : rows;
  return 1;
}

/* Probabilities: dtarget = -dl * w * (1 - smoothing) * log_softmax(input). */
static ac_tensor *grad_target(ac_grad *g) {
  ac_expr *e = &g->x;
  ac_tensor *x = ARG_T(g, 0), *dy = g->dout[0];
  int64_t s[AC_MAX_DIMS];
  const int d = class_dim(x);
  double scale = -(1 - ARG_F(g, 5));
  if (ARG_I(g, 4) == AC_CROSS_ENTROPY_REDUCTION_MEAN)
    scale *= (double)x->shape[d] / (double)x->numel;
  ac_tensor *v = x_mul(e, T(x_log_softmax(e, x, d, NULL)), F(scale));
  if (!ARG_NONE(g, 2)) {
    for (int i = 0; i < x->ndim; i++) s[i] = i == d ? x->shape[d] : 1;
    v = x_mul(e, T(v), T(x_reshape(e, ARG_T(g, 2), s, x->ndim)));
  }
  if (ARG_I(g, 4) == AC_CROSS_ENTROPY_REDUCTION_NONE) {
    memcpy(s, x->shape, 8 * (size_t)x->ndim);
    s[d] = 1;
    dy = x_reshape(e, dy, s, x->ndim);
  }
  return ac_grad_reduce_to(g, 1, x_mul(e, T(v), T(dy)));
}

static void grad(ac_grad *g) {
  const ac_value *a = g->args;
  ac_tensor *w = ARG_NONE(g, 2) ? NULL : ARG_T(g, 2);
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0,
                x_cross_entropy_backward(&g->x, g->dout[0], a[0].tensor, a[1].tensor, w, a[3].i,
                                         (int)a[4].i, a[5].f));
  if (ac_grad_needs(g, 1)) ac_grad_set(g, 1, grad_target(g));
}

static int64_t flops(const ac_frame *f) { return 12 * ARG_T(f, 0)->numel; }

AC_OP(cross_entropy,
      .sig =
          "cross_entropy(input: tensor, target: tensor, weight: tensor?, ignore_index: int = -100, "
          "reduction: enum(none|mean|sum) = mean, label_smoothing: float = 0) -> tensor",
      .shape = shape, .cpu = cpu, .grad = grad, .composed = plain,
      .save = AC_SAVE_IN(0) | AC_SAVE_IN(1) | AC_SAVE_IN(2), .flops = flops);
AC_OP(cross_entropy_backward,
      .sig = "cross_entropy_backward(dy: tensor, input: tensor, target: tensor, weight: tensor?, "
             "ignore_index: int, "
             "reduction: enum(none|mean|sum), label_smoothing: float) -> tensor",
      .shape = shape_backward, .cpu = cpu_backward, .hidden = true, .flops_per_element = 12);
