/* cartesian_prod: all choices of one element from each tensor, the last one changing fastest.
   n tensors (a), (b), ... -> y (a b ..., n). One tensor gives itself.
   gradient: of the ops it consists of.
   example: accel.cartesian_prod { accel.tensor { 1, 2 }, accel.tensor { 3, 4 } } --> { { 1, 3 }, { 1, 4 }, { 2, 3 }, { 2, 4 } } */
#include "ops/index/index.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *list[AC_MAX_DIMS];
  const int64_t row = -1;
  char s[128];
  for (int i = 0; i < a[0].n; i++)
    if (a[0].tensors[i]->ndim != 1) {
      x->st = AC_FAIL(x->e, SHAPE, "tensor %d has shape %s; expected one dim", i + 1,
                      aci_shape_str(a[0].tensors[i]->ndim, a[0].tensors[i]->shape, s, sizeof s));
      return 0;
    }
  if (a[0].n == 1) {
    out[0] = x_alias(x, a[0].tensors[0]);
    return 1;
  }
  list[0] = x_meshgrid(x, a[0].tensors, a[0].n, AC_MESHGRID_INDEXING_IJ, list + 1, AC_MAX_DIMS - 1);
  if (list[0] == NULL) return 0;
  for (int i = 0; i < a[0].n; i++) list[i] = x_reshape(x, list[i], &row, 1);
  if (x->st == AC_OK) out[0] = x_stack(x, list, a[0].n, 1);
  return 1;
}

AC_OP(cartesian_prod, .sig = "cartesian_prod(tensors: tensors) -> tensor", .composed = composed,
      .on_complex = aci_complex_parts);
