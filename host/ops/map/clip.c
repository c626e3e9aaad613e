/* clip: clamp under its other name: y = min(max(x, min), max), either bound may be missing.
   x (any shape), min, max (numbers, or tensors that broadcast) -> y
   gradient: as for clamp.
   example: accel.tensor { -2.0, 0.5, 9 }:clip(-1, 1) --> { -1, 0.5, 1 }
   example: accel.tensor { -2, 5, 9 }:clip { max = 6 } --> { -2, 5, 6 } */
#include "ops/core/op.h"

static const ac_operand *bound(const ac_value *v, ac_operand *o) {
  if (v->kind == AC_T_NONE) return NULL;
  *o = v->kind == AC_T_SCALAR ? (ac_operand){NULL, v->scalar} : ac_operand_tensor(v->tensor);
  return o;
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_operand lo, hi;
  out[0] = x_clamp(x, a[0].tensor, bound(&a[1], &lo), bound(&a[2], &hi));
  return 1;
}

AC_OP(clip, .sig = "clip(x: tensor, min: operand?, max: operand?) -> tensor", .composed = composed);
