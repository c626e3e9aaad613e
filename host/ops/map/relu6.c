/* relu6: y = min(max(x, 0), 6). NaN stays NaN. Integers stay integers.          x (any shape) -> y (same shape)
   gradient: dx = dy if 0 < x < 6, else 0.
   example: accel.tensor { -1.0, 3.0, 8.0 }:relu6() --> { 0, 3, 6 } */
#include "ops/core/op.h"

static int plain(ac_expr *x, const ac_value *a, ac_tensor **out) {
  out[0] = x_hardtanh(x, a[0].tensor, 0, 6);
  return 1;
}

AC_OP(relu6, .sig = "relu6(x: tensor) -> tensor", .composed = plain);
