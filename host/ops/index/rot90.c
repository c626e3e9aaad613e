/* rot90: x turned k times by a quarter in the plane of two dims, from the first towards the second one.
   x (at least 2 dims) -> y (the extents of the two dims exchanged if k is odd)
   gradient: dy turned back.
   example: accel.tensor { { 1, 2 }, { 3, 4 } }:rot90() --> { { 2, 4 }, { 1, 3 } }
   example: accel.tensor { { 1, 2 }, { 3, 4 } }:rot90(2) --> { { 4, 3 }, { 2, 1 } } */
#include "ops/index/index.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor;
  const int64_t k = (a[1].i % 4 + 4) % 4;
  ac_tensor *both = x_flip(x, t, a[2].ints, a[2].n); /* reports faults of the dims */
  if (both == NULL) return 0;
  if (a[2].n != 2 || t->ndim < 2) {
    x->st = AC_FAIL(x->e, INVALID, "needs two dims of a tensor of at least 2, got %d of %d", a[2].n,
                    t->ndim);
    return 0;
  }
  const int64_t d[2] = {a[2].ints[0], a[2].ints[1]};
  if (k == 0) out[0] = x_clone(x, t);
  else if (k == 2) out[0] = both;
  else out[0] = x_transpose(x, x_flip(x, t, &d[k == 1], 1), d[0], d[1]);
  return 1;
}

AC_OP(rot90, .sig = "rot90(x: tensor, k: int = 1, dims: dims = [0, 1]) -> tensor",
      .composed = composed, .on_complex = aci_complex_parts);
