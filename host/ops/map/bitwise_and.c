/* bitwise_and: y = x & other, bit by bit. For bool, true if both are.
   x, other (integers or bool, shapes that broadcast) -> y (promoted dtype).          No gradient.
   example: accel.tensor { 6, 12 }:bitwise_and(10) --> { 2, 8 }
   example: accel.tensor({ true, false }):bitwise_and(accel.tensor { true, true }) --> { true, false } */
#include "ops/map/bitwise.h"

#define FWD(T, p, x, y) ((x) & (y))

ACI_LOOP2(bitwise_and, int64_t, i64, FWD)
static const aci_map bitwise_and_map = {2, NULL, NULL, bitwise_and_i64};

AC_OP(bitwise_and, .sig = "bitwise_and(x: operand, other: operand) -> tensor",
      .shape = aci_bitwise_shape, .cpu = aci_map_cpu, .elementwise = true, .data = &bitwise_and_map,
      .nondiff = true, .inplace = true);
