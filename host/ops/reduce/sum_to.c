/* sum_to: x summed down to a shape that broadcasts to its own. It undoes broadcasting in gradients.
   x (broadcast shape), shape -> y (shape).          gradient: dx = dy expanded. */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor;
  const int64_t *want = a[1].ints;
  int lead = t->ndim - a[1].n, n = 0;
  int64_t dims[AC_MAX_DIMS];
  for (int d = 0; d < t->ndim; d++)
    if (d < lead || (want[d - lead] == 1 && t->shape[d] != 1)) dims[n++] = d;
  ac_tensor *y = n > 0 ? x_sum(x, t, dims, n, true, NULL) : t;
  out[0] = x_view(x, y, want, a[1].n);
  return 1;
}

AC_OP(sum_to, .sig = "sum_to(x: tensor, shape: shape) -> tensor", .composed = composed,
      .hidden = true, .on_complex = aci_complex_composed);
