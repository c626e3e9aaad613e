/* isin: which elements are among test_elements. With invert, which are not. NaN is never among them.
   assume_unique promises that neither tensor has equal elements. The result is the same.
   elements, test_elements (tensors of any shape, or one of them a number) -> y (shape of elements, bool).          No gradient.
   example: accel.isin(accel.tensor { 1, 2, 3 }, accel.tensor { 3, 1 }) --> { true, false, true }
   example: accel.isin(accel.tensor { 1, 2, 3 }, 2, { invert = true }) --> { true, false, true } */
#include "ops/core/op.h"

/* v in dtype dt. A number becomes a tensor of rank 0 on the device of `like`. */
static ac_tensor *tensor_of(ac_expr *x, const ac_value *v, ac_tensor *like, ac_dtype dt) {
  const int64_t row = -1;
  if (v->kind == AC_T_TENSOR) return v->tensor->dtype == dt ? v->tensor : x_cast(x, v->tensor, dt);
  ac_tensor *none = x_narrow(x, x_reshape(x, like, &row, 1), 0, 0, 0);
  return x_full_like(x, x_sum(x, none, NULL, 0, false, &dt), v->scalar, &dt, NULL);
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  const int64_t row = -1;
  ac_tensor *like = a[0].kind == AC_T_TENSOR   ? a[0].tensor
                    : a[1].kind == AC_T_TENSOR ? a[1].tensor
                                               : NULL;
  if (like == NULL) {
    x->st = AC_FAIL(x->e, INVALID, "needs at least one tensor");
    return 0;
  }
  const ac_frame f = {.args = a, .n_args = 2};
  ac_dtype dt = ac_frame_promote(&f, 0, 1);
  if (dt == AC_BOOL) dt = AC_I64;
  ac_tensor *v = tensor_of(x, &a[0], like, dt), *among = tensor_of(x, &a[1], like, dt);
  if (x->st != AC_OK) return 0;
  const ac_dtype flag = AC_BOOL;
  if (among->numel == 0) {
    out[0] = x_full_like(x, v, (ac_scalar){.kind = AC_SCALAR_BOOL, .i = a[2].b}, &flag, NULL);
    return 1;
  }
  const ac_operand last = ac_operand_int(among->numel - 1);
  ac_tensor *sorted = x_sort(x, x_reshape(x, among, &row, 1), 0, false, false, NULL);
  ac_tensor *at =
      x_clamp(x, x_reshape(x, x_sorted_positions(x, sorted, T(v), false), &row, 1), NULL, &last);
  ac_tensor *near = x_reshape(x, x_index_select(x, sorted, 0, at), v->shape, v->ndim);
  out[0] = a[2].b ? x_ne(x, T(near), T(v)) : x_eq(x, T(near), T(v));
  return 1;
}

AC_OP(isin,
      .sig = "isin(elements: operand, test_elements: operand, invert: bool = false, "
             "assume_unique: bool = false) -> tensor",
      .composed = composed, .nondiff = true);
