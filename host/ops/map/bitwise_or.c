/* bitwise_or: y = x | other, bit by bit. For bool, true if one is.
   x, other (integers or bool, shapes that broadcast) -> y (promoted dtype).          No gradient.
   example: accel.tensor { 6, 12 }:bitwise_or(10) --> { 14, 14 }
   example: accel.tensor({ true, false }):bitwise_or(accel.tensor { true, true }) --> { true, true } */
#include "ops/map/bitwise.h"

#define FWD(T, p, x, y) ((x) | (y))

ACI_LOOP2(bitwise_or, int64_t, i64, FWD)
static const aci_map bitwise_or_map = {2, NULL, NULL, bitwise_or_i64};

AC_OP(bitwise_or, .sig = "bitwise_or(x: operand, other: operand) -> tensor",
      .shape = aci_bitwise_shape, .cpu = aci_map_cpu, .elementwise = true, .data = &bitwise_or_map,
      .nondiff = true, .inplace = true);
