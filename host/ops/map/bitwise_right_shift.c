/* bitwise_right_shift: y = x shifted right by other bits, keeping the sign: floor(x / 2^other). 0 or -1 by the sign if other
   is below 0 or above 63.
   x, other (integers, shapes that broadcast) -> y (promoted dtype).          No gradient.
   example: accel.tensor { 16, -3 }:bitwise_right_shift(1) --> { 8, -2 }
   example: accel.tensor { 16, 6 } >> accel.tensor { 4, 1 } --> { 1, 3 } */
#include "ops/map/bitwise.h"

#define FWD(T, p, x, y) ((x) >> ((y) < 0 || (y) > 63 ? (T)63 : (y)))

ACI_LOOP2(bitwise_right_shift, int64_t, i64, FWD)
static const aci_map shift_map = {2, NULL, NULL, bitwise_right_shift_i64};

AC_OP(bitwise_right_shift, .sig = "bitwise_right_shift(x: operand, other: operand) -> tensor",
      .shape = aci_bitwise_shape, .cpu = aci_map_cpu, .elementwise = true, .data = &shift_map,
      .nondiff = true, .inplace = true);
