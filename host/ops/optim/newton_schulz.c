/* newton_schulz: a matrix with its singular values moved towards one, by a quintic iteration of matrix products
   (Muon applies it to its momentum).
   y = x / max(|x|, eps), transposed if it has more rows than columns, then `steps` times: s = y y^T, y = a y + (b s + c s s) y
   x (m, n) -> y (m, n) in `dtype`, which the iteration runs in. bf16 is enough for a direction. The
   default coefficients (a, b, c) rise fastest from zero and end between 0.7 and 1.2.
   gradient: through the iteration.
   example: accel.tensor {{3, 0}, {0, 0.3}}:newton_schulz({dtype = "f64"}) --> {{ 0.7020, 0 }, { 0, 0.7087 }} */
#include "ops/core/op.h"

enum { X, COEFFICIENTS, STEPS, EPS, DTYPE };
/* as in PyTorch. The results of all iterations stay allocated until the end */
enum { MOST_STEPS = 100 };

static int composed(ac_expr *ex, const ac_value *args, ac_tensor **out) {
  ac_tensor *x = args[X].tensor;
  const double *k = args[COEFFICIENTS].floats;
  const ac_dtype dt = args[DTYPE].dtype, wide = dt == AC_F64 ? AC_F64 : AC_F32;
  const ac_operand eps = F(args[EPS].f);
  char a[128];
  if (x->ndim != 2) {
    ex->st = AC_FAIL(ex->e, SHAPE, "needs a matrix, got shape %s",
                     aci_shape_str(x->ndim, x->shape, a, sizeof a));
    return 0;
  }
  if (!ac_dtype_is_float((ac_dtype)x->dtype) || !ac_dtype_is_float(dt)) {
    ex->st = AC_FAIL(ex->e, DTYPE, "needs floats, got x in %s and dtype %s",
                     ac_dtype_name((ac_dtype)x->dtype), ac_dtype_name(dt));
    return 0;
  }
  if (args[COEFFICIENTS].n != 3 || args[STEPS].i < 0 || args[STEPS].i >= MOST_STEPS ||
      !(args[EPS].f >= 0)) {
    ex->st = AC_FAIL(
        ex->e, INVALID,
        "needs 3 coefficients, steps in 0 .. %d and eps not below zero, got %d, %lld and %g",
        MOST_STEPS - 1, args[COEFFICIENTS].n, (long long)args[STEPS].i, args[EPS].f);
    return 0;
  }
  const bool tall = x->shape[0] > x->shape[1];
  ac_tensor *y = x_to(ex, x, &dt, NULL);
  if (tall) y = x_t(ex, y);
  ac_tensor *norm =
      x_sqrt(ex, x_sum(ex, x_square(ex, x_to(ex, y, &wide, NULL)), NULL, 0, false, NULL));
  y = x_div(ex, T(y), T(x_to(ex, x_clamp(ex, norm, &eps, NULL), &dt, NULL)));
  for (int64_t i = 0; i < args[STEPS].i && ex->st == AC_OK; i++) {
    ac_tensor *s = x_matmul(ex, y, x_t(ex, y));
    ac_tensor *poly = x_addmm(ex, s, s, s, aci_float(k[1]), aci_float(k[2]));
    y = x_addmm(ex, y, poly, y, aci_float(k[0]), aci_float(1));
  }
  if (tall) y = x_t(ex, y);
  out[0] = y;
  return 1;
}

AC_OP(
    newton_schulz,
    .sig =
        "newton_schulz(x: tensor, coefficients: floats = [3.4445, -4.775, 2.0315], steps: int = 5, "
        "eps: float = 1e-7, dtype: dtype = bf16) -> tensor",
    .composed = composed);
