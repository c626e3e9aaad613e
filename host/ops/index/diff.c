/* diff: differences of neighbours along dim, taken n times. For bool, whether neighbours differ. prepend and append
   are joined to x along dim first.
   x (..., m, ...) -> y (..., max(m - n, 0), ...), y[i] = x[i + 1] - x[i] for n = 1
   gradient: of the ops it consists of.
   example: accel.tensor { 1, 4, 9, 16 }:diff() --> { 3, 5, 7 }
   example: accel.tensor({ { 1, 4 }, { 9, 16 } }):diff(1, 1) --> { { 8, 12 } }
   example: accel.tensor { 1, 4 }:diff { prepend = accel.tensor { 0 } } --> { 1, 3 } */
#include "ops/index/index.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor;
  const int64_t d = a[2].i < 0 ? a[2].i + t->ndim : a[2].i;
  if (a[1].i < 0) {
    x->st = AC_FAIL(x->e, INVALID, "n must not be negative, got %lld", (long long)a[1].i);
    return 0;
  }
  if (d < 0 || d >= t->ndim) {
    x_select(x, t, a[2].i, 0); /* reports a fault of dim */
    return 0;
  }
  ac_tensor *parts[3];
  int m = 0;
  if (a[3].kind != AC_T_NONE) parts[m++] = a[3].tensor;
  parts[m++] = t;
  if (a[4].kind != AC_T_NONE) parts[m++] = a[4].tensor;
  if (m > 1 && a[1].i > 0) t = x_cat(x, parts, m, d);
  if (t == NULL) return 0;
  const int64_t times = a[1].i < t->shape[d] ? a[1].i : t->shape[d];
  if (times == 0) t = x_alias(x, t);
  for (int64_t i = 0; i < times && t != NULL; i++) {
    const int64_t k = t->shape[d] - 1;
    ac_tensor *next = x_narrow(x, t, d, 1, k), *here = x_narrow(x, t, d, 0, k);
    t = t->dtype == AC_BOOL ? x_ne(x, T(next), T(here)) : x_sub(x, T(next), T(here), aci_float(1));
  }
  out[0] = t;
  return 1;
}

AC_OP(diff,
      .sig = "diff(x: tensor, n: int = 1, dim: dim = -1, prepend: tensor?, append: tensor?) -> "
             "tensor",
      .composed = composed, .on_complex = aci_complex_composed);
