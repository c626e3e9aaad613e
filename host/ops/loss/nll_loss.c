/* nll_loss: l[i] = -weight[target[i]] input[i, target[i]] of logarithms of probabilities. Elements with class
   ignore_index count nothing. mean divides by the sum of weight[target]. log_softmax and this are cross_entropy,
   which is one pass.
   input (C) | (N, C) | (N, C, d1, ...), target () | (N) | (N, d1, ...) i64 or i32, weight (C) -> () | like target
   with reduction = none, f32 under autocast
   gradient: dinput = -dl weight at the class of each element, 0 elsewhere.
   example: accel.nll_loss(accel.tensor { { -1.0, -2.0 }, { -3.0, -0.5 } }, accel.tensor { 0, 1 }) --> 0.75 */
#include "ops/loss/elementwise.h"

#include "ops/core/ctx_impl.h"

enum { INPUT, TARGET, WEIGHT, IGNORE, REDUCTION };

static ac_status check(const ac_value *a, ac_err *e) {
  const ac_tensor *x = a[INPUT].tensor, *t = a[TARGET].tensor,
                  *w = a[WEIGHT].kind == AC_T_TENSOR ? a[WEIGHT].tensor : NULL;
  char s[128], u[128];
  int d = x->ndim > 1 ? 1 : 0;
  if (!ac_dtype_is_float((ac_dtype)x->dtype) || x->ndim == 0)
    return AC_FAIL(e, DTYPE,
                   "input must be floating point with a dim of classes, got %s of rank %d",
                   ac_dtype_name((ac_dtype)x->dtype), (int)x->ndim);
  if (t->dtype != AC_I64 && t->dtype != AC_I32)
    return AC_FAIL(e, DTYPE, "target has to hold classes (i64 or i32), got %s",
                   ac_dtype_name((ac_dtype)t->dtype));
  bool ok = t->ndim == x->ndim - 1;
  for (int i = 0; ok && i < t->ndim; i++) ok = t->shape[i] == x->shape[i < d ? i : i + 1];
  if (!ok)
    return AC_FAIL(e, SHAPE, "target of shape %s does not fit input of shape %s",
                   aci_shape_str(t->ndim, t->shape, s, sizeof s),
                   aci_shape_str(x->ndim, x->shape, u, sizeof u));
  if (w != NULL && (w->ndim != 1 || w->shape[0] != x->shape[d]))
    return AC_FAIL(e, SHAPE, "weight of shape %s does not fit %lld classes",
                   aci_shape_str(w->ndim, w->shape, s, sizeof s), (long long)x->shape[d]);
  if (w != NULL && !ac_dtype_is_float((ac_dtype)w->dtype))
    return AC_FAIL(e, DTYPE, "weight must be floating point, not %s",
                   ac_dtype_name((ac_dtype)w->dtype));
  return AC_OK;
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *in = a[INPUT].tensor, *t = a[TARGET].tensor;
  if (x->st == AC_OK) x->st = check(a, x->e);
  if (x->st != AC_OK) return 1;
  const int d = in->ndim > 1 ? 1 : 0;
  const bool plain = a[WEIGHT].kind != AC_T_TENSOR;
  /* 16 bits cannot count elements */
  const ac_dtype dt = (ac_dtype)in->dtype, wide = dt == AC_F64 ? AC_F64 : AC_F32;
  int64_t one[AC_MAX_DIMS], flat = t->numel;
  memcpy(one, in->shape, 8 * (size_t)in->ndim);
  one[d] = 1;
  ac_operand ignore = ac_operand_int(a[IGNORE].i);
  ac_tensor *skip = x_eq(x, T(t), ignore), *safe = x_masked_fill(x, t, skip, ac_operand_int(0));
  ac_tensor *picked = x_gather(x, in, d, x_reshape(x, safe, one, in->ndim));
  if (x->st == AC_INDEX) {
    x->st = AC_FAIL(
        x->e, INDEX,
        "target holds a value that is not one of the %lld classes (0 to %lld; ignore_index is %lld)",
        (long long)in->shape[d], (long long)in->shape[d] - 1, (long long)a[IGNORE].i);
    return 1;
  }
  ac_tensor *l = x_neg(x, x_reshape(x, picked, t->shape, t->ndim));
  ac_tensor *w =
      plain ? NULL : x_index_select(x, a[WEIGHT].tensor, 0, x_reshape(x, safe, &flat, 1));
  if (w != NULL) w = x_masked_fill(x, x_reshape(x, w, t->shape, t->ndim), skip, F(0));
  l = x_cast(x, x_masked_fill(x, l, skip, F(0)), wide);
  if (w != NULL) l = x_mul(x, T(l), T(w = x_cast(x, w, wide)));
  if (a[REDUCTION].i == ACI_LOSS_MEAN) {
    ac_tensor *total = plain ? x_cast(x, x_ne(x, T(t), ignore), wide) : w;
    l = x_sum(x, l, NULL, 0, false, NULL);
    l = x_div(x, T(l), T(x_sum(x, total, NULL, 0, false, NULL)));
  } else {
    l = aci_loss_reduce(x, l, a[REDUCTION].i);
  }
  out[0] = x_cast(x, l, dt);
  return 1;
}

AC_OP(
    nll_loss,
    .sig =
        "nll_loss(input: tensor, target: tensor, weight: tensor?, ignore_index: int = -100, reduction: enum(none|mean|sum) = mean) "
        "-> tensor",
    .composed = composed, .autocast = AC_CAST_F32);
