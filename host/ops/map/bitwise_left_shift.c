/* bitwise_left_shift: y = x shifted left by other bits, x * 2^other. 0 if other is below 0 or above 63.
   x, other (integers, shapes that broadcast) -> y (promoted dtype).          No gradient.
   example: accel.tensor { 1, 3 }:bitwise_left_shift(2) --> { 4, 12 }
   example: accel.tensor { 1, 3 } << accel.tensor { 4, 1 } --> { 16, 6 } */
#include "ops/map/bitwise.h"

#define FWD(T, p, x, y) ((y) < 0 || (y) > 63 ? (T)0 : (x) << (y))

ACI_LOOP2(bitwise_left_shift, int64_t, i64, FWD)
static const aci_map shift_map = {2, NULL, NULL, bitwise_left_shift_i64};

AC_OP(bitwise_left_shift, .sig = "bitwise_left_shift(x: operand, other: operand) -> tensor",
      .shape = aci_bitwise_shape, .cpu = aci_map_cpu, .elementwise = true, .data = &shift_map,
      .nondiff = true, .inplace = true);
