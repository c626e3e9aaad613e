/* mode: the most frequent element along dim, the smallest of several, and the index of its last occurrence (from 0).
   x (any shape) -> values, indices (without dim, or 1 with keepdim)
   gradient: dx = dvalues at indices, 0 elsewhere.
   example: accel.tensor { 3, 1, 3, 1, 2 }:mode() --> 1, 3
   example: accel.tensor { { 1, 2 }, { 5, 5 } }:mode(2) --> { 1, 5 }, { 0, 1 } */
#include "ops/reduce/composed.h"

/* The lines are sorted. A running maximum of the places where a value begins gives each element its number within the run
 * of equal ones. The first of the largest numbers is the last element of the run. */
static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor, *at = NULL, *where = NULL;
  const int64_t d = aci_composed_dim(x, t, a[1].i);
  const ac_dtype count = AC_I64;
  if (d < 0) return 0;
  const int64_t n = t->ndim > 0 ? t->shape[d] : 1;
  if (n == 0) {
    x->st = AC_FAIL(x->e, SHAPE, "nothing to choose from: dim has no elements");
    return 0;
  }
  ac_tensor *s = x_sort(x, t, d, false, true, &at);
  if (n == 1 || x->st != AC_OK) {
    const bool drop = t->ndim > 0 && !a[2].b;
    out[0] = drop ? x_squeeze(x, s, &d, 1) : s;
    out[1] = drop ? x_squeeze(x, at, &d, 1) : at;
    return 2;
  }
  ac_tensor *place = x_cumsum(x, x_ones_like(x, s, &count, NULL), d, NULL);
  ac_tensor *same = x_eq(x, T(x_narrow(x, s, d, 1, n - 1)), T(x_narrow(x, s, d, 0, n - 1)));
  ac_tensor *begin = x_masked_fill(x, x_narrow(x, place, d, 1, n - 1), same, F(1));
  ac_tensor *both[2] = {x_narrow(x, place, d, 0, 1), begin};
  if (x->st != AC_OK) return 0;
  begin = x_cummax(x, x_cat(x, both, 2, d), d, &where);
  ac_tensor *best = x_argmax(x, x_sub(x, T(place), T(begin), aci_float(1)), &d, true);
  out[0] = x_gather(x, s, d, best);
  out[1] = x_gather(x, at, d, best);
  if (!a[2].b)
    for (int i = 0; i < 2; i++) out[i] = x_squeeze(x, out[i], &d, 1);
  return 2;
}

AC_OP(mode,
      .sig = "mode(x: tensor, dim: dim = -1, keepdim: bool = false) -> (values: tensor, indices: "
             "tensor)",
      .composed = composed);
