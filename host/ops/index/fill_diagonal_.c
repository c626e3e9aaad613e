/* fill_diagonal_: x := x with fill_value on the main diagonal: where all positions are equal. With wrap it begins again after every n + 1
   rows of a matrix with n columns.
   x (n, m), or of more dims of one extent! -> x
   gradient: dx = dy, 0 on the diagonal.
   example: accel.zeros(2, 3):fill_diagonal_(5) --> { { 5, 0, 0 }, { 0, 5, 0 } }
   example: accel.zeros(4, 2):fill_diagonal_(5, true) --> { { 5, 0 }, { 0, 5 }, { 0, 0 }, { 5, 0 } } */
#include "ops/index/index.h"

/* The mask of the positions, written through views of it: a diagonal, then those of the rows after it. */
static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor;
  const ac_dtype flag = AC_BOOL;
  const ac_scalar yes = {.kind = AC_SCALAR_BOOL, .i = 1};
  char s[128];
  bool cube = t->ndim >= 2;
  for (int i = 1; cube && t->ndim > 2 && i < t->ndim; i++) cube = t->shape[i] == t->shape[0];
  if (!cube) {
    x->st = AC_FAIL(x->e, SHAPE, "needs at least 2 dims, more only of one extent, got shape %s",
                    aci_shape_str(t->ndim, t->shape, s, sizeof s));
    return 0;
  }
  ac_tensor *mask = x_zeros_like(x, t, &flag, NULL), *diagonal = mask;
  /* of the first dim and the last one, which is the diagonal so far */
  for (int i = 1; diagonal != NULL && i < t->ndim; i++)
    diagonal = x_diagonal(x, diagonal, 0, 0, i == 1 ? 1 : diagonal->ndim - 1);
  x_fill_(x, diagonal, yes);
  const int64_t n = t->shape[1], rows = a[2].b && t->ndim == 2 ? t->shape[0] : 0;
  for (int64_t r = n + 1; r < rows && x->st == AC_OK; r += n + 1)
    x_fill_(x, x_diagonal(x, x_narrow(x, mask, 0, r, rows - r), 0, 0, 1), yes);
  out[0] = x_masked_fill_(x, t, mask, (ac_operand){NULL, a[1].scalar});
  return 1;
}

AC_OP(fill_diagonal_,
      .sig = "fill_diagonal_(x!: tensor, fill_value: scalar, wrap: bool = false) -> tensor",
      .composed = composed);
