/* unflatten: one dim of x as several, without copying. One of the sizes may be -1.
   x (..., n, ...), sizes whose product is n -> view of x (..., sizes, ...)
   gradient: as for view.
   example: accel.arange(6):unflatten(1, { 2, 3 }) --> { { 0, 1, 2 }, { 3, 4, 5 } }
   example: accel.zeros(4, 6):unflatten(-1, { -1, 2 }).shape --> { 4, 3, 2 } */
#include "ops/core/ctx_impl.h"
#include "ops/index/index.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor;
  const int64_t d = a[1].i < 0 ? a[1].i + t->ndim : a[1].i;
  const int n = a[2].n;
  int64_t shape[AC_MAX_DIMS], known = 1;
  int open = -1;
  char s[128], w[128];
  if (d < 0 || d >= t->ndim) {
    x_select(x, t, a[1].i, 0); /* reports a fault of dim */
    return 0;
  }
  bool ok = n > 0 && n + t->ndim - 1 <= AC_MAX_DIMS;
  for (int i = 0; i < n && ok; i++) {
    const int64_t size = a[2].ints[i];
    shape[d + i] = size;
    if (size == -1 && open < 0) open = i;
    else ok = size >= 0 && !__builtin_mul_overflow(known, size, &known);
  }
  if (ok && open >= 0) {
    ok = known > 0 && t->shape[d] % known == 0;
    if (ok) shape[d + open] = t->shape[d] / known;
  } else {
    ok = ok && known == t->shape[d];
  }
  if (!ok) {
    x->st = AC_FAIL(
        x->e, SHAPE, "the %lld positions of dim %lld of shape %s cannot be arranged as %s",
        (long long)t->shape[d], (long long)(a[1].i < 0 ? a[1].i : a[1].i + x->ctx->index_base),
        aci_shape_str(t->ndim, t->shape, s, sizeof s), aci_shape_str(n, a[2].ints, w, sizeof w));
    return 0;
  }
  memcpy(shape, t->shape, (size_t)d * 8);
  memcpy(shape + d + n, t->shape + d + 1, (size_t)(t->ndim - d - 1) * 8);
  out[0] = x_view(x, t, shape, t->ndim - 1 + n);
  return 1;
}

AC_OP(unflatten, .sig = "unflatten(x: tensor, dim: dim, sizes: ints) -> tensor",
      .composed = composed, .on_complex = aci_complex_composed);
