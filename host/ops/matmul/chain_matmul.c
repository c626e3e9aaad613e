/* chain_matmul: the product of several matrices in the order that costs the fewest operations: multi_dot for matrices alone.
   n matrices (a, b), (b, c), ... -> y (a, z)
   gradient: as for multi_dot.
   example: accel.chain_matmul { accel.tensor { { 1.0, 2 } }, accel.tensor { { 3.0 }, { 4 } } } --> { { 11 } } */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  char s[128];
  for (int i = 0; i < a[0].n; i++)
    if (a[0].tensors[i]->ndim != 2) {
      x->st = AC_FAIL(x->e, SHAPE, "tensor %d has shape %s; expected a matrix", i + 1,
                      aci_shape_str(a[0].tensors[i]->ndim, a[0].tensors[i]->shape, s, sizeof s));
      return 0;
    }
  out[0] = a[0].n == 1 ? x_alias(x, a[0].tensors[0]) : x_multi_dot(x, a[0].tensors, a[0].n);
  return 1;
}

AC_OP(chain_matmul, .sig = "chain_matmul(tensors: tensors) -> tensor", .composed = composed);
