/* random_: x := independent integers, each equally likely: from .. to - 1, or 0 .. n - 1 for random_(n). Without bounds from 0 to
   the largest integer of the dtype, for floats to the one up to which the dtype has all integers.
   x (any shape)! -> x
   gradient: none to the old values.
   example: accel.empty(3):random_(7, 8) --> { 7, 7, 7 }
   example: accel.empty(1000):random_(4):max():item() --> 3 */
#include "ops/core/op.h"

static int64_t largest(ac_dtype dt) {
  switch (dt) {
    case AC_I64: return INT64_MAX;
    case AC_I32: return INT32_MAX;
    case AC_I16: return INT16_MAX;
    case AC_I8: return INT8_MAX;
    case AC_U8: return UINT8_MAX;
    case AC_BOOL: return 1;
    case AC_F64: return (int64_t)1 << 53;
    case AC_F32: return 1 << 24;
    case AC_F16: return 1 << 11;
    default: return 1 << 8;
  }
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  const bool one = a[1].kind != AC_T_NONE, two = a[2].kind != AC_T_NONE;
  const int64_t most = largest((ac_dtype)a[0].tensor->dtype);
  const int64_t low = one && two ? a[1].i : 0;
  const int64_t high = two ? a[2].i : one ? a[1].i : most == INT64_MAX ? most : most + 1;
  out[0] = x_randint_(x, a[0].tensor, low, high, a[3].kind == AC_T_NONE ? NULL : a[3].generator);
  return 1;
}

AC_OP(random_, .sig = "random_(x!: tensor, from: int?, to: int?, generator: generator?) -> tensor",
      .composed = composed);
