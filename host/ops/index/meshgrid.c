/* meshgrid: coordinates of a grid: result i holds tensor i along dim i, the same along the others.
   n tensors (a), (b), ... of one dim (or none) -> n tensors (a, b, ...), not copied
   indexing "xy" swaps the first two dims, as for pictures whose first coordinate runs along a row.
   gradient: each sums its dy over the other dims.
   example: accel.meshgrid { accel.tensor { 1, 2 }, accel.tensor { 3, 4, 5 } }[1] --> { { 1, 1, 1 }, { 2, 2, 2 } }
   example: accel.meshgrid({ accel.tensor { 1, 2 }, accel.tensor { 3, 4, 5 } }, "xy")[1] --> { { 1, 2 }, { 1, 2 }, { 1, 2 } } */
#include "ops/index/index.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  const int n = a[0].n;
  const bool swap = a[1].i == AC_MESHGRID_INDEXING_XY && n >= 2;
  int64_t full[AC_MAX_DIMS], one[AC_MAX_DIMS];
  char s[128];
  if (n == 0 || n > AC_MAX_DIMS) {
    x->st = AC_FAIL(x->e, INVALID, "takes 1 to %d tensors, got %d", AC_MAX_DIMS, n);
    return 0;
  }
  for (int i = 0; i < n; i++) {
    const ac_tensor *t = a[0].tensors[i];
    int d = swap && i < 2 ? 1 - i : i;
    if (t->ndim > 1 || t->dtype != a[0].tensors[0]->dtype) {
      x->st = t->ndim > 1 ? AC_FAIL(x->e, SHAPE, "tensor %d has shape %s; expected one dim", i + 1,
                                    aci_shape_str(t->ndim, t->shape, s, sizeof s))
                          : AC_FAIL(x->e, DTYPE, "tensor %d is %s, the first one %s", i + 1,
                                    ac_dtype_name((ac_dtype)t->dtype),
                                    ac_dtype_name((ac_dtype)a[0].tensors[0]->dtype));
      return 0;
    }
    full[d] = t->numel;
  }
  for (int i = 0; i < n; i++) {
    int d = swap && i < 2 ? 1 - i : i;
    for (int k = 0; k < n; k++) one[k] = k == d ? full[d] : 1;
    out[i] = x_expand(x, x_reshape(x, a[0].tensors[i], one, n), full, n);
  }
  return n;
}

AC_OP(meshgrid, .sig = "meshgrid(tensors: tensors, indexing: enum(ij|xy) = ij) -> tensors",
      .composed = composed, .on_complex = aci_complex_composed);
