/* bucketize: which of the intervals between ascending boundaries each element lies in: how many boundaries are
   below it, with right also those equal to it. NaN is larger than every number.
   x (any shape, or a number), boundaries (n) -> y (shape of x, i64 from 0, with out_int32 i32).          No gradient.
   example: accel.tensor({ 1, 3.5, 9 }):bucketize(accel.tensor { 1.0, 3, 5 }) --> { 0, 2, 3 }
   example: accel.bucketize(3, accel.tensor { 1, 3, 5 }, true) --> 2 */
#include "ops/map/map.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *b = a[1].tensor;
  char s[128];
  if (b->ndim != 1) {
    x->st = AC_FAIL(x->e, SHAPE, "boundaries must have one dim, got shape %s",
                    aci_shape_str(b->ndim, b->shape, s, sizeof s));
    return 0;
  }
  out[0] = x_sorted_positions(x, b, aci_value_operand(&a[0]), a[2].b);
  if (a[3].b) out[0] = x_cast(x, out[0], AC_I32);
  return 1;
}

AC_OP(bucketize,
      .sig = "bucketize(x: operand, boundaries: tensor, right: bool = false, "
             "out_int32: bool = false) -> tensor",
      .composed = composed, .nondiff = true);
