/* adjoint: the conjugate transpose of matrices. Of real numbers it is mT: the last two dims change places. Fields: x.mH, and
   x.H of one matrix.
   x (..., m, n) -> y (..., n, m)
   gradient: dx = the adjoint of dy.
   example: accel.adjoint(accel.tensor { { 1, 2 }, { 3, 4 } }) --> { { 1, 3 }, { 2, 4 } } */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  out[0] = x_mT(x, x_conj(x, a[0].tensor));
  return 1;
}

AC_OP(adjoint, .sig = "adjoint(x: tensor) -> tensor", .composed = composed,
      .on_complex = aci_complex_composed);
