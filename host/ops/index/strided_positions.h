/* Gradients of views whose elements may overlap (as_strided, windows): dy is added at the
 * positions that its elements came from. */
#ifndef ACI_OPS_STRIDED_POSITIONS_H
#define ACI_OPS_STRIDED_POSITIONS_H
#include "ops/core/op.h"

/* The sum of index times stride over the dims of dy, from offset on: i64, in dy's shape. */
static inline ac_tensor *aci_strided_positions(ac_expr *x, ac_tensor *dy, const int64_t *stride,
                                               int64_t offset) {
  const ac_dtype i64 = AC_I64;
  const int nd = ac_tensor_ndim(dy);
  ac_tensor *one = x_ones_like(x, dy, &i64, NULL);
  ac_tensor *at = x_mul(x, T(one), ac_operand_int(offset));
  for (int d = 0; d < nd; d++) {
    ac_tensor *step = x_sub(x, T(x_cumsum(x, one, d, NULL)), ac_operand_int(1), aci_float(1));
    at = x_add(x, T(at), T(x_mul(x, T(step), ac_operand_int(stride[d]))), aci_float(1));
  }
  return at;
}

/* Zeros of this shape (at least one dim) with dy's dtype and device. */
static inline ac_tensor *aci_zeros_for(ac_expr *x, ac_tensor *dy, int nd, const int64_t *shape) {
  const int64_t row = -1, start = 0;
  int64_t none[AC_MAX_DIMS];
  memcpy(none, shape, (size_t)nd * sizeof *none);
  none[0] = 0;
  ac_tensor *piece = x_reshape(x, x_narrow(x, x_reshape(x, dy, &row, 1), 0, 0, 0), none, nd);
  return x_slice_backward(x, &piece, 1, shape, nd, 0, &start, 1);
}

#endif
