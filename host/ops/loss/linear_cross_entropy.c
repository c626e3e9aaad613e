/* linear_cross_entropy: cross_entropy(linear(input, linear_weight, linear_bias), target), with the logits never whole
   in memory: they are made in tiles of the vocabulary, once in forward and once more in backward, and all that is kept
   of them is a number per row. keep = true keeps their exponentials for backward instead, (..., v) of the dtype that is
   multiplied: one product of four less for that much memory.
   input (..., k), linear_weight (v, k), linear_bias (v)?, target (...) holds classes, i64 or i32, weight (v)? and
   the rest as in cross_entropy -> () | like target with reduction = none, f32 under autocast. Under autocast the
   products run in its dtype and add in f32. input, linear_weight and their gradients keep their dtypes.
   gradient: with q the target and p = softmax(logits), dlogits = dl * (p * sum(w q) - w q) tile by tile. dinput =
   dlogits linear_weight, dlinear_weight = dlogits^T input, dlinear_bias = the sum of dlogits over the rows, by
   linear_cross_entropy_backward. Second derivatives go through plain ops.
   example: accel.linear_cross_entropy(accel.tensor { 1.0, 2 }, accel.tensor { { 0.0, 0 }, { 1, 0 }, { 0, 1 } }, accel.tensor(2)) --> 0.407606
   example: accel.linear_cross_entropy(accel.zeros(2, 3), accel.ones(4, 3), accel.tensor { 1, 3 }, { reduction = "sum" }) --> 2.772589 */
#include "ops/loss/linear_cross_entropy.h"

#include "ops/core/ctx_impl.h"
#include "ops/matmul/product.h"

enum { INPUT, LINEAR, TARGET, BIAS, WEIGHT, REDUCTION, IGNORE, SMOOTHING, KEEP };

static ac_tensor *optional(const ac_value *a) { return a->kind == AC_T_TENSOR ? a->tensor : NULL; }
static bool is_short(ac_dtype d) { return d == AC_BF16 || d == AC_F16; }

static ac_status check_dtypes(const ac_value *a, bool lowered, ac_err *e) {
  const ac_tensor *x = a[INPUT].tensor, *w = a[LINEAR].tensor, *t = a[TARGET].tensor,
                  *b = optional(&a[BIAS]);
  const ac_tensor *ts[3] = {x, w, b};
  static const char *const name[3] = {"input", "linear_weight", "linear_bias"};
  char s[160], r[160];
  for (int i = 0; i < 3; i++) {
    if (ts[i] == NULL) continue;
    if (!ac_dtype_is_float((ac_dtype)ts[i]->dtype))
      return AC_FAIL(e, DTYPE, "%s must be floating point, not %s", name[i],
                     ac_dtype_name((ac_dtype)ts[i]->dtype));
    /* autocast gives f32, bf16 and f16 one dtype, f64 stays f64 */
    if (ts[i]->dtype != x->dtype && !(lowered && ts[i]->dtype != AC_F64 && x->dtype != AC_F64))
      return AC_FAIL(e, DTYPE, "input is %s but %s is %s; cast one of them",
                     aci_tensor_str(x, s, sizeof s), name[i], aci_tensor_str(ts[i], r, sizeof r));
  }
  if (ac_dtype_is_float((ac_dtype)t->dtype))
    return AC_FAIL(
        e, DTYPE,
        "target has to hold classes (i64 or i32), got %s of shape %s (for probabilities take "
        "cross_entropy of linear)",
        ac_dtype_name((ac_dtype)t->dtype), aci_shape_str(t->ndim, t->shape, s, sizeof s));
  if (t->dtype != AC_I64 && t->dtype != AC_I32)
    return AC_FAIL(e, DTYPE, "target has to hold classes (i64 or i32), not %s",
                   ac_dtype_name((ac_dtype)t->dtype));
  return AC_OK;
}

static ac_status check(const ac_value *a, bool lowered, ac_err *e) {
  const ac_tensor *x = a[INPUT].tensor, *w = a[LINEAR].tensor, *t = a[TARGET].tensor,
                  *b = optional(&a[BIAS]);
  char s[128], r[128];
  aci_shape_str(w->ndim, w->shape, r, sizeof r);
  if (x->ndim == 0 || w->ndim != 2)
    return AC_FAIL(
        e, SHAPE,
        "needs an input of at least one dim and a linear_weight (classes, features), got shapes %s and %s",
        aci_shape_str(x->ndim, x->shape, s, sizeof s), r);
  AC_TRY(check_dtypes(a, lowered, e));
  if (x->shape[x->ndim - 1] != w->shape[1])
    return aci_product_mismatch(x, w, x->shape[x->ndim - 1], w->shape[1], e);
  if (t->ndim != x->ndim - 1 || memcmp(t->shape, x->shape, 8 * (size_t)t->ndim) != 0)
    return AC_FAIL(
        e, SHAPE,
        "target of shape %s does not fit input of shape %s: one class per row of features",
        aci_shape_str(t->ndim, t->shape, r, sizeof r),
        aci_shape_str(x->ndim, x->shape, s, sizeof s));
  if (b != NULL && (b->ndim != 1 || b->shape[0] != w->shape[0]))
    return AC_FAIL(e, SHAPE,
                   "a linear_weight of shape %s needs a linear_bias of shape (%lld), got %s", r,
                   (long long)w->shape[0], aci_shape_str(b->ndim, b->shape, s, sizeof s));
  return aci_ce_check_options(optional(&a[WEIGHT]), w->shape[0], a[SMOOTHING].f, e);
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  const bool lowered = x->ctx->autocast_on;
  ac_tensor *in = a[INPUT].tensor, *w = a[LINEAR].tensor, *t = a[TARGET].tensor,
            *b = optional(&a[BIAS]);
  ac_tensor *lse, *kept, *shifts;
  x->st = check(a, lowered, x->e);
  if (x->st != AC_OK) return 0;
  const ac_dtype dt = (ac_dtype)in->dtype;
  const ac_dtype product = lowered && dt != AC_F64 ? x->ctx->autocast_dtype : dt;
  const ac_dtype result = lowered && dt != AC_F64 ? AC_F32 : dt;
  const int64_t rows = t->numel, flat[2] = {rows, in->shape[in->ndim - 1]};
  const bool leads =
      aci_requires_grad(in) || aci_requires_grad(w) || (b != NULL && aci_requires_grad(b));
  ac_tensor *y = x_linear_cross_entropy_tiles(
      x, in->ndim == 2 ? in : x_reshape(x, in, flat, 2), w,
      t->ndim == 1 ? t : x_reshape(x, t, &rows, 1), b, optional(&a[WEIGHT]), (int)a[REDUCTION].i,
      a[IGNORE].i, a[SMOOTHING].f, product, result, a[KEEP].b && x->ctx->grad_enabled && leads,
      &lse, &kept, &shifts);
  const bool each = a[REDUCTION].i == AC_LINEAR_CROSS_ENTROPY_REDUCTION_NONE;
  out[0] = each && t->ndim != 1 ? x_reshape(x, y, t->shape, t->ndim) : y;
  return 1;
}

AC_OP(
    linear_cross_entropy,
    .sig =
        "linear_cross_entropy(input: tensor, linear_weight: tensor, target: tensor, linear_bias: tensor?, "
        "weight: tensor?, reduction: enum(none|mean|sum) = mean, ignore_index: int = -100, "
        "label_smoothing: float = 0, keep: bool = false) -> tensor",
    .composed = composed);

/* ---- hidden ops ---- */
/* Extent of the pieces of n, of which none is above most or so. */
static int64_t even_cut(int64_t n, int64_t most, int64_t unit) {
  const int64_t pieces = aci_lce_max(1, (n + most - 1) / most);
  return aci_lce_min(n, ((n + pieces - 1) / pieces + unit - 1) / unit * unit);
}

/* A tile has a hundredth of all logits, within bounds: below, products lose speed, above, it leaves
 * the cache. */
void aci_lce_plan(int64_t n, int64_t v, int64_t *rows, int64_t *cols, int64_t *tiles) {
  enum { LEAST = 1 << 18, MOST = 1 << 20, ROWS = 1024, COLS = 480 };
  const double share = 0.01 * (double)n * (double)v;
  const int64_t elements = share < LEAST ? LEAST : share > MOST ? MOST : (int64_t)share;
  *rows = even_cut(n, aci_lce_min(ROWS, elements / COLS), 16);
  *cols = even_cut(v, elements / aci_lce_max(*rows, 1), 32);
  if (tiles != NULL) *tiles = *cols > 0 ? (v + *cols - 1) / *cols : 0;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, ACI_LCE_INPUT);
  const int nd = ARG_I(f, ACI_LCE_REDUCTION) == AC_LINEAR_CROSS_ENTROPY_REDUCTION_NONE ? 1 : 0;
  AC_TRY(ac_frame_out(f, f->args[ACI_LCE_RESULT].dtype, nd, x->shape, e));
  AC_TRY(ac_frame_out(f, AC_F64, 1, x->shape, e));
  int64_t rows, cols, kept[2] = {0, 0}, shifts[2] = {0, 0};
  if (ARG_B(f, ACI_LCE_KEEP)) {
    kept[0] = shifts[1] = x->shape[0];
    kept[1] = ARG_T(f, ACI_LCE_LINEAR)->shape[0];
    aci_lce_plan(kept[0], kept[1], &rows, &cols, &shifts[0]);
  }
  AC_TRY(ac_frame_out(f, f->args[ACI_LCE_PRODUCT].dtype, 2, kept, e));
  return ac_frame_out(f, AC_F64, 2, shifts, e);
}

static ac_status shape_backward(ac_frame *f, ac_err *e) {
  const int of[3] = {ACI_LCE_INPUT, ACI_LCE_LINEAR, ACI_LCE_BIAS};
  const int64_t none = 0;
  for (int i = 0; i < 3; i++) {
    const ac_tensor *t = ARG_B(f, ACI_LCE_NEEDS + i) ? ARG_T(f, ACI_LCE_BACK + of[i]) : NULL;
    if (t != NULL) AC_TRY(ac_frame_out(f, (ac_dtype)t->dtype, t->ndim, t->shape, e));
    else AC_TRY(ac_frame_out(f, AC_F32, 1, &none, e));
  }
  return AC_OK;
}

static int64_t product_flops(const ac_frame *f, int at) {
  return 2 * ARG_T(f, at + ACI_LCE_INPUT)->numel * ARG_T(f, at + ACI_LCE_LINEAR)->shape[0];
}
static int64_t flops(const ac_frame *f) { return product_flops(f, 0); }
static int64_t flops_backward(const ac_frame *f) {
  const bool again = ARG_T(f, ACI_LCE_KEPT)->numel == 0;
  return product_flops(f, ACI_LCE_BACK) *
         (again + ARG_B(f, ACI_LCE_NEEDS) + ARG_B(f, ACI_LCE_NEEDS + 1));
}

static ac_tensor *as_dtype(ac_expr *x, ac_tensor *t, ac_dtype d) {
  return t == NULL || t->dtype == d ? t : x_cast(x, t, d);
}

static int plain(ac_expr *x, const ac_value *a, ac_tensor **out) {
  const ac_dtype d = a[ACI_LCE_PRODUCT].dtype;
  ac_tensor *logits =
      x_linear(x, as_dtype(x, a[ACI_LCE_INPUT].tensor, d), as_dtype(x, a[ACI_LCE_LINEAR].tensor, d),
               as_dtype(x, optional(&a[ACI_LCE_BIAS]), d));
  ac_tensor *loss =
      x_cross_entropy(x, as_dtype(x, logits, is_short(d) ? AC_F32 : d), a[ACI_LCE_TARGET].tensor,
                      optional(&a[ACI_LCE_WEIGHT]), a[ACI_LCE_IGNORE].i,
                      (int)a[ACI_LCE_REDUCTION].i, a[ACI_LCE_SMOOTHING].f);
  out[0] = as_dtype(x, loss, a[ACI_LCE_RESULT].dtype);
  return 1;
}

static void grad(ac_grad *g) {
  const ac_value *a = g->args;
  ac_tensor *dw, *db;
  const bool x = ac_grad_needs(g, ACI_LCE_INPUT), w = ac_grad_needs(g, ACI_LCE_LINEAR),
             b = ac_grad_needs(g, ACI_LCE_BIAS);
  if (g->dout[0] == NULL) return; /* the other results have no gradient */
  ac_tensor *dx = x_linear_cross_entropy_backward(
      &g->x, g->dout[0], g->out[1], g->out[2], g->out[3], a[ACI_LCE_INPUT].tensor,
      a[ACI_LCE_LINEAR].tensor, a[ACI_LCE_TARGET].tensor, optional(&a[ACI_LCE_BIAS]),
      optional(&a[ACI_LCE_WEIGHT]), (int)a[ACI_LCE_REDUCTION].i, a[ACI_LCE_IGNORE].i,
      a[ACI_LCE_SMOOTHING].f, a[ACI_LCE_PRODUCT].dtype, x, w, b, &dw, &db);
  if (x) ac_grad_set(g, ACI_LCE_INPUT, dx);
  if (w) ac_grad_set(g, ACI_LCE_LINEAR, dw);
  if (b) ac_grad_set(g, ACI_LCE_BIAS, db);
}

AC_OP(
    linear_cross_entropy_tiles,
    .sig =
        "linear_cross_entropy_tiles(input: tensor, linear_weight: tensor, target: tensor, linear_bias: "
        "tensor?, "
        "weight: tensor?, reduction: enum(none|mean|sum), ignore_index: int, label_smoothing: float, "
        "product: dtype, result: dtype, keep: bool) -> (loss: tensor, lse: tensor, kept: tensor, "
        "shifts: tensor)",
    .shape = shape, .cpu = aci_lce_run, .grad = grad, .composed = plain, .flops = flops,
    .save = AC_SAVE_IN(ACI_LCE_INPUT) | AC_SAVE_IN(ACI_LCE_LINEAR) | AC_SAVE_IN(ACI_LCE_TARGET) |
            AC_SAVE_IN(ACI_LCE_BIAS) | AC_SAVE_IN(ACI_LCE_WEIGHT) | AC_SAVE_OUT(1) |
            AC_SAVE_OUT(2) | AC_SAVE_OUT(3),
    .hidden = true);
/* Gradients that are not wanted come without elements. */
AC_OP(
    linear_cross_entropy_backward,
    .sig =
        "linear_cross_entropy_backward(dy: tensor, lse: tensor, kept: tensor, shifts: tensor, input: "
        "tensor, linear_weight: tensor, "
        "target: tensor, linear_bias: tensor?, weight: tensor?, reduction: enum(none|mean|sum), "
        "ignore_index: int, label_smoothing: float, product: dtype, need_input: bool, need_linear: bool, "
        "need_bias: bool) -> (dinput: tensor, dlinear: tensor, dbias: tensor)",
    .shape = shape_backward, .cpu = aci_lce_run_backward, .flops = flops_backward, .hidden = true);
