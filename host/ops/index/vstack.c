/* vstack: tensors joined along the first dim, those of rank 0 and 1 as rows.
   n tensors (a_i, b) or (b) -> y (sum of a_i, b)
   gradient: each its rows of dy, through reshape and cat.
   example: accel.vstack { accel.tensor { 1, 2 }, accel.tensor { { 3, 4 } } } --> { { 1, 2 }, { 3, 4 } } */
#include "ops/index/cat_atleast.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  out[0] = aci_cat_atleast(x, &a[0], 2, 0);
  return 1;
}

AC_OP(vstack, .sig = "vstack(tensors: tensors) -> tensor", .composed = composed,
      .autocast = AC_CAST_PROMOTE, .alias = "row_stack", .on_complex = aci_complex_composed);
