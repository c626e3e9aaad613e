/* stack: tensors of one shape joined along a new dim.
   n tensors (a, b) -> y (n, a, b), (a, n, b) or (a, b, n)
   gradient: each its slice of dy, through unsqueeze and cat.
   example: accel.stack { accel.tensor { 1, 2 }, accel.tensor { 3, 4 } } --> { { 1, 2 }, { 3, 4 } }
   example: accel.stack({ accel.tensor { 1, 2 }, accel.tensor { 3, 4 } }, 2) --> { { 1, 3 }, { 2, 4 } } */
#include <stdlib.h>

#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  char s[128], t[128];
  int n = a[0].n;
  if (n == 0) {
    x->st = AC_FAIL(x->e, INVALID, "needs at least one tensor");
    return 0;
  }
  for (int i = 1; i < n; i++)
    if (!aci_same_shape(a[0].tensors[0], a[0].tensors[i])) {
      const ac_tensor *p = a[0].tensors[0], *q = a[0].tensors[i];
      x->st = AC_FAIL(x->e, SHAPE, "tensors 1 and %d have different shapes, %s and %s", i + 1,
                      aci_shape_str(p->ndim, p->shape, s, sizeof s),
                      aci_shape_str(q->ndim, q->shape, t, sizeof t));
      return 0;
    }
  int64_t dim = a[1].i < 0 ? a[1].i + a[0].tensors[0]->ndim + 1 : a[1].i;
  ac_tensor **ts = malloc((size_t)n * sizeof *ts);
  if (ts == NULL) {
    x->st = AC_FAIL(x->e, OOM, "no memory for a list of %d tensors", n);
    return 0;
  }
  for (int i = 0; i < n; i++) ts[i] = x_unsqueeze(x, a[0].tensors[i], i == 0 ? a[1].i : dim);
  out[0] = x->st == AC_OK ? x_cat(x, ts, n, dim) : NULL;
  free(ts);
  return 1;
}

AC_OP(stack, .sig = "stack(tensors: tensors, dim: dim = 0) -> tensor", .composed = composed,
      .autocast = AC_CAST_PROMOTE, .on_complex = aci_complex_composed);
