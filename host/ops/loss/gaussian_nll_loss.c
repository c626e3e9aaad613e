/* gaussian_nll_loss: l = (ln v + (input - target)^2 / v) / 2 with v = max(var, eps). full adds ln(2 pi) / 2.
   input, target (any shape, the same for both, floats), var (that shape, 1 for any extent, or without the last
   dim) -> () | that shape with reduction = none
   gradient: to all three, to var as if v were var, so that variances below eps can grow, any number of times.
   example: accel.gaussian_nll_loss(accel.tensor { 1.0 }, accel.tensor { 3.0 }, accel.tensor { 2.0 }) --> 1.346574 */
#include "ops/core/ctx_impl.h"
#include "ops/loss/elementwise.h"

enum { INPUT, TARGET, VAR, FULL, EPS, REDUCTION };

/* var with as many dims as x: extent 1 for each missing last dim. */
static ac_tensor *fitted(ac_expr *x, const ac_tensor *in, ac_tensor *var) {
  char a[128], b[128];
  const bool each =
      var->ndim == in->ndim - 1 && memcmp(var->shape, in->shape, 8 * (size_t)var->ndim) == 0;
  bool ok = each || var->ndim == in->ndim || var->ndim == 0;
  for (int d = 0; ok && !each && d < var->ndim; d++)
    ok = var->shape[d] == in->shape[d] || var->shape[d] == 1;
  if (!ok) {
    x->st = AC_FAIL(
        x->e, SHAPE,
        "var of shape %s does not fit input of shape %s; it has that shape, 1 for some extents, or no last dim",
        aci_shape_str(var->ndim, var->shape, a, sizeof a),
        aci_shape_str(in->ndim, in->shape, b, sizeof b));
    return NULL;
  }
  return each ? x_unsqueeze(x, var, -1) : var;
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_scalar one = aci_float(1);
  if (aci_loss_same(x, &a[INPUT], &a[TARGET], "input", "target") != AC_OK) return 1;
  ac_tensor *v = fitted(x, a[INPUT].tensor, a[VAR].tensor);
  if (v == NULL) return 1;
  ac_tensor *fixed = ac_expr_own(x, aci_tensor_detach(v));
  ac_tensor *more =
      x_masked_fill(x, x_sub(x, F(a[EPS].f), T(fixed), one), x_ge(x, T(fixed), F(a[EPS].f)), F(0));
  v = x_add(x, T(v), T(more), one); /* eps if var is less */
  ac_tensor *d = x_sub(x, T(a[INPUT].tensor), T(a[TARGET].tensor), one);
  ac_tensor *l = x_add(x, T(x_div(x, T(x_mul(x, T(d), T(d))), T(v))), T(x_log(x, v)), one);
  l = x_mul(x, T(l), F(0.5));
  if (a[FULL].b) l = x_add(x, T(l), F(0.91893853320467274178), one);
  out[0] = aci_loss_reduce(x, l, a[REDUCTION].i);
  return 1;
}

AC_OP(
    gaussian_nll_loss,
    .sig =
        "gaussian_nll_loss(input: tensor, target: tensor, var: tensor, full: bool = false, eps: float = 1e-6, "
        "reduction: enum(none|mean|sum) = mean) -> tensor",
    .composed = composed, .autocast = AC_CAST_F32);
