/* log_normal_: x := independent values whose logarithm is normally distributed with this mean and standard deviation.
   x (floating point, any shape)! -> x
   gradient: none to the old values.
   example: local x = accel.empty(10000):log_normal_(1, 0.5) return math.abs(x:log():mean():item() - 1) < 0.05 --> true */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  if (!(a[2].f > 0)) {
    x->st = AC_FAIL(x->e, INVALID, "std must be above 0, got %g", a[2].f);
    return 0;
  }
  out[0] = x_exp_(
      x, x_normal_(x, a[0].tensor, a[1].f, a[2].f, a[3].kind == AC_T_NONE ? NULL : a[3].generator));
  return 1;
}

AC_OP(log_normal_,
      .sig = "log_normal_(x!: tensor, mean: float = 1, std: float = 2, generator: generator?) -> "
             "tensor",
      .composed = composed);
