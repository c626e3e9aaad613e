/* block_diag: a matrix with the tensors along its diagonal and zeros elsewhere. Vectors count as rows, numbers as one element.
   n tensors (a_i, b_i), (b_i) or () -> y (sum of a_i, sum of b_i), promoted dtype
   gradient: each its block of dy.
   example: accel.block_diag { accel.tensor { { 1, 2 } }, accel.tensor { 3 } } --> { { 1, 2, 0 }, { 0, 0, 3 } } */
#include "ops/index/index.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  const int n = a[0].n;
  ac_tensor *sum = NULL;
  int64_t wide = 0, at = 0;
  char s[128];
  for (int i = 0; i < n; i++) {
    const ac_tensor *t = a[0].tensors[i];
    if (t->ndim > 2) {
      x->st = AC_FAIL(x->e, SHAPE, "tensor %d has shape %s; expected at most 2 dims", i + 1,
                      aci_shape_str(t->ndim, t->shape, s, sizeof s));
      return 0;
    }
    wide += t->ndim == 0 ? 1 : t->shape[t->ndim - 1];
  }
  /* joined one by one: cat promotes */
  for (int i = 0; i < n && x->st == AC_OK; i++) {
    ac_tensor *t = a[0].tensors[i];
    const int64_t cols = t->ndim == 0 ? 1 : t->shape[t->ndim - 1];
    const int64_t shape[2] = {t->ndim < 2 ? 1 : t->shape[0], cols};
    const int64_t more[2] = {at, wide - at - cols};
    t = x_pad(x, x_reshape(x, t, shape, 2), more, 2, AC_PAD_MODE_CONSTANT, 0);
    ac_tensor *both[2] = {sum, t};
    if (t != NULL) sum = i == 0 ? t : x_cat(x, both, 2, 0);
    at += cols;
  }
  if (n == 0) x->st = AC_FAIL(x->e, INVALID, "needs at least one tensor");
  out[0] = sum;
  return 1;
}

AC_OP(block_diag, .sig = "block_diag(tensors: tensors) -> tensor", .composed = composed,
      .on_complex = aci_complex_parts);
