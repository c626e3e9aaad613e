/* searchsorted: the index (from 0) at which each value would be inserted into an ascending sequence to keep it
   sorted: before equal elements, with right (or side = "right") after them. NaN is larger than every number.
   sorted_sequence (n), values (any shape, or a number) -> y (shape of values, i64, with out_int32 i32)
   sorted_sequence (..., n), values (..., m) -> y (..., m): each row in its own sequence.
   sorter (shape of sorted_sequence, i64): the sequence is sorted_sequence in this order along the last dim.
   No gradient.
   example: accel.searchsorted(accel.tensor { 1, 3, 5 }, accel.tensor { 3, 6 }) --> { 1, 3 }
   example: accel.searchsorted(accel.tensor { 1, 3, 5 }, 3, { right = true }) --> 2
   example: accel.searchsorted(accel.tensor { 5, 1, 3 }, 3, { side = "right", sorter = accel.tensor { 1, 2, 0 } }) --> 2 */
#include "ops/index/search.h"
#include "ops/map/map.h"

/* sorted_positions: the search itself, which has the kernels. */
static ac_status shape(ac_frame *f, ac_err *e) { return aci_search_shape(f, 0, 1, e); }
static ac_status cpu(ac_frame *f, ac_err *e) { return aci_search_run(f, 0, 1, ARG_B(f, 2), e); }

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *s = a[0].tensor, *order = a[5].kind == AC_T_NONE ? NULL : a[5].tensor;
  const bool side = a[4].kind != AC_T_NONE;
  const bool right = side ? a[4].i == AC_SEARCHSORTED_SIDE_RIGHT : a[2].b;
  char p[128], q[128];
  if (side && a[2].b && !right) {
    x->st = AC_FAIL(x->e, INVALID, "side is left and right is true; give one of them");
    return 0;
  }
  if (order != NULL) {
    if (!aci_same_shape(order, s) || order->dtype != AC_I64 || s->ndim == 0) {
      x->st = AC_FAIL(x->e, SHAPE, "sorter must be i64 of shape %s, got %s of shape %s",
                      aci_shape_str(s->ndim, s->shape, p, sizeof p),
                      ac_dtype_name((ac_dtype)order->dtype),
                      aci_shape_str(order->ndim, order->shape, q, sizeof q));
      return 0;
    }
    s = x_gather(x, s, -1, order);
  }
  out[0] = x_sorted_positions(x, s, aci_value_operand(&a[1]), right);
  if (a[3].b) out[0] = x_cast(x, out[0], AC_I32);
  return 1;
}

AC_OP(searchsorted,
      .sig = "searchsorted(sorted_sequence: tensor, values: operand, right: bool = false, "
             "out_int32: bool = false, side: enum(left|right)?, sorter: tensor?) -> tensor",
      .composed = composed, .nondiff = true);
AC_OP(sorted_positions,
      .sig = "sorted_positions(sorted_sequence: tensor, values: operand, right: bool) -> tensor",
      .shape = shape, .cpu = cpu, .nondiff = true, .hidden = true);
