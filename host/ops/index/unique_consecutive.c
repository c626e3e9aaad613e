/* unique_consecutive: x without the elements that equal the one before them, in the order of x. With dim, without the slices along it
   that equal the one before. Every NaN is distinct.
   x (any shape) -> values (m), inverse (shape of x, i64: which value each element is), counts (m, i64: how often in a row)
   x (a, n, b), dim 2 -> values (a, m, b), inverse (n), counts (m). If return_inverse or return_counts is given, the results are
   those of PyTorch: the values and what is asked for.          No gradient.
   example: accel.tensor { 1, 1, 2, 1 }:unique_consecutive() --> { 1, 2, 1 }, { 0, 0, 1, 2 }, { 2, 1, 1 }
   example: accel.tensor { 1, 1, 2 }:unique_consecutive { return_counts = true } --> { 1, 2 }, { 2, 1 } */
#include "ops/index/unique.h"
#include "ops/reduce/composed.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor, *all[3];
  const bool flat = a[3].kind == AC_T_NONE;
  const int64_t row = -1, zero = 0, one = 1;
  const ac_dtype whole = AC_I64, flag = AC_BOOL;
  char s[128];
  if (flat) t = x_reshape(x, t, &row, 1);
  const int64_t d = t == NULL ? -1 : flat ? 0 : aci_composed_dim(x, t, a[3].i);
  if (d < 0) return 0;
  const int64_t n = t->ndim > 0 ? t->shape[d] : 1;
  if (!flat && t->numel == 0 && n > 0) {
    x->st = AC_FAIL(x->e, SHAPE, "slices of a tensor of shape %s have no elements to compare",
                    aci_shape_str(t->ndim, t->shape, s, sizeof s));
    return 0;
  }
  /* begins: whether each slice differs from the one before it */
  ac_tensor *lines = t;
  const int64_t shape[2] = {n, n > 0 ? t->numel / n : 0};
  if (!flat) lines = x_reshape(x, t->ndim > 0 ? x_movedim(x, t, &d, 1, &zero, 1) : t, shape, 2);
  const int64_t none = 0, some = n > 0;
  ac_tensor *first =
      x_reshape(x, x_narrow(x, x_reshape(x, lines, &row, 1), 0, 0, some), n > 0 ? &one : &none, 1);
  first = x_ones_like(x, first, &flag, NULL);
  ac_tensor *begins = first;
  if (n > 1) {
    ac_tensor *next = x_narrow(x, lines, 0, 1, n - 1), *last = x_narrow(x, lines, 0, 0, n - 1);
    ac_tensor *differ = x_ne(x, T(next), T(last));
    if (!flat) differ = x_any(x, differ, &one, 1, false);
    ac_tensor *both[2] = {first, differ};
    if (x->st == AC_OK) begins = x_cat(x, both, 2, 0);
  }
  ac_tensor *at = x_reshape(x, x_nonzero(x, begins), &row, 1);
  ac_tensor *end = x_full_like(x, first, (ac_scalar){.kind = AC_SCALAR_INT, .i = n}, &whole, NULL);
  all[0] = x_index_select(x, t, d, at);
  all[1] = x_sub(x, T(x_cumsum(x, begins, 0, NULL)), ac_operand_int(1), aci_float(1));
  if (flat && x->st == AC_OK) all[1] = x_reshape(x, all[1], a[0].tensor->shape, a[0].tensor->ndim);
  all[2] = x_diff(x, at, 1, 0, NULL, end);
  if (x->st != AC_OK) return 0;
  return aci_unique_results(all, &a[1], &a[2], out);
}

AC_OP(unique_consecutive,
      .sig =
          "unique_consecutive(x: tensor, return_inverse: bool?, return_counts: bool?, dim: dim?) "
          "-> (values: tensor, inverse: tensor?, counts: tensor?) dynamic",
      .composed = composed, .nondiff = true);
