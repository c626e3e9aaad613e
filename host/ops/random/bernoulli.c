/* bernoulli: 1 with the probability that the element of x is, else 0, independently. With p, that probability for all.
   x (floating point, of 0 .. 1, any shape) -> y (same shape, dtype)
   gradient: 0.
   example: accel.tensor { 0.0, 1 }:bernoulli() --> { 0, 1 }
   example: local m = accel.full({ 10000 }, 0.25):bernoulli():mean():item() return m > 0.2 and m < 0.3 --> true */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor;
  ac_generator *g = a[2].kind == AC_T_NONE ? NULL : a[2].generator;
  const ac_dtype dt = (ac_dtype)t->dtype;
  const ac_operand p = a[1].kind != AC_T_NONE ? F(a[1].f) : T(t);
  if (p.tensor != NULL && !ac_dtype_is_float(dt)) {
    x->st = AC_FAIL(x->e, DTYPE, "needs float probabilities, got %s; cast them, or give p",
                    ac_dtype_name(dt));
    return 0;
  }
  out[0] = x_bernoulli_(x, x_zeros_like(x, t, NULL, NULL), &p, g);
  return 1;
}

AC_OP(bernoulli, .sig = "bernoulli(x: tensor, p: float?, generator: generator?) -> tensor",
      .composed = composed, .nondiff = true);
