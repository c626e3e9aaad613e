/* clip: clamp under its other name: y = min(max(x, min), max), either bound may be missing.
   x (any shape) -> y (same shape)
   gradient: that of clamp.
   example: accel.tensor { -2.0, 0.5, 9 }:clip(-1, 1) --> { -1, 0.5, 1 }
   example: accel.tensor { -2, 5, 9 }:clip { max = 6 } --> { -2, 5, 6 } */
#include "ops/op.h"

static const ac_scalar *bound(const ac_value *v) { return v->kind == AC_T_NONE ? NULL : &v->scalar; }

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  out[0] = x_clamp(x, a[0].tensor, bound(&a[1]), bound(&a[2]));
  return 1;
}

AC_OP(clip, .sig = "clip(x: tensor, min: scalar?, max: scalar?) -> tensor", .composed = composed);
