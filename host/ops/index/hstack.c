/* hstack: tensors joined along the second dim. Those of rank 0 and 1 are joined along their only one.
   n tensors (a, b_i) or (b_i) -> y (a, sum of b_i) or (sum of b_i)
   gradient: each its columns of dy, through reshape and cat.
   example: accel.hstack { accel.tensor { 1, 2 }, accel.tensor { 3 } } --> { 1, 2, 3 }
   example: accel.hstack { accel.tensor { { 1 }, { 2 } }, accel.tensor { { 3 }, { 4 } } } --> { { 1, 3 }, { 2, 4 } } */
#include "ops/index/cat_atleast.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  out[0] = aci_cat_atleast(x, &a[0], 1, a[0].n > 0 && a[0].tensors[0]->ndim > 1 ? 1 : 0);
  return 1;
}

AC_OP(hstack, .sig = "hstack(tensors: tensors) -> tensor", .composed = composed,
      .autocast = AC_CAST_PROMOTE, .on_complex = aci_complex_composed);
