/* trace: the sum of the main diagonal.
   x (m, n) -> y () (integers and bool give i64)
   gradient: dx = dy on the diagonal, 0 elsewhere.
   example: accel.tensor({ { 1.0, 2 }, { 3, 4 } }):trace() --> 5 */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor;
  char s[128];
  if (t->ndim != 2) {
    x->st = AC_FAIL(x->e, SHAPE, "needs a matrix, got shape %s; diagonal takes more dims",
                    aci_shape_str(t->ndim, t->shape, s, sizeof s));
    return 0;
  }
  out[0] = x_sum(x, x_diagonal(x, t, 0, 0, 1), NULL, 0, false, NULL);
  return 1;
}

AC_OP(trace, .sig = "trace(x: tensor) -> tensor", .composed = composed,
      .on_complex = aci_complex_composed);
