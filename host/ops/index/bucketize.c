/* bucketize: which of the intervals between ascending boundaries each element lies in: how many boundaries are
   below it, with right also those equal to it. NaN is larger than every number.
   x (any shape, or a number), boundaries (n) -> y (shape of x, i64, from 0).          No gradient.
   example: accel.tensor({ 1, 3.5, 9 }):bucketize(accel.tensor { 1.0, 3, 5 }) --> { 0, 2, 3 }
   example: accel.bucketize(3, accel.tensor { 1, 3, 5 }, true) --> 2 */
#include "ops/index/search.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *b = ARG_T(f, 1);
  char a[128];
  if (b->ndim != 1)
    return AC_FAIL(e, SHAPE, "boundaries must have one dim, got shape %s",
                   aci_shape_str(b->ndim, b->shape, a, sizeof a));
  return aci_search_shape(f, 1, 0, e);
}
static ac_status cpu(ac_frame *f, ac_err *e) { return aci_search_run(f, 1, 0, ARG_B(f, 2), e); }

AC_OP(bucketize, .sig = "bucketize(x: operand, boundaries: tensor, right: bool = false) -> tensor",
      .shape = shape, .cpu = cpu, .nondiff = true);
