/* diag: the diagonal of a matrix as a vector, or a square matrix with a vector on its diagonal and zeros elsewhere.
   x (m, n) -> view of x (k), or x (k) -> y (k + |diagonal|, k + |diagonal|)
   gradient: through diagonal.
   example: accel.tensor { 1, 2 }:diag() --> { { 1, 0 }, { 0, 2 } }
   example: accel.tensor { { 1, 2 }, { 3, 4 } }:diag() --> { 1, 4 }
   example: accel.tensor { 5 }:diag(1) --> { { 0, 5 }, { 0, 0 } } */
#include "ops/index/index.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor;
  const int64_t k = a[1].i;
  char s[128];
  if (t->ndim == 2) {
    out[0] = x_diagonal(x, t, k, 0, 1);
  } else if (t->ndim == 1) {
    int64_t side[2] = {0, 0};
    if (k == INT64_MIN || __builtin_add_overflow(t->shape[0], k < 0 ? -k : k, &side[0])) {
      x->st = AC_FAIL(x->e, INVALID, "there is no diagonal %lld", (long long)k);
      return 0;
    }
    side[1] = side[0];
    out[0] = x_diagonal_backward(x, t, side, 2, k, 0, 1);
  } else {
    x->st = AC_FAIL(x->e, SHAPE, "takes a vector or a matrix, got shape %s",
                    aci_shape_str(t->ndim, t->shape, s, sizeof s));
  }
  return 1;
}

AC_OP(diag, .sig = "diag(x: tensor, diagonal: int = 0) -> tensor", .composed = composed,
      .on_complex = aci_complex_composed);
