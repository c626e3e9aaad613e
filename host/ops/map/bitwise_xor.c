/* bitwise_xor: y = x ^ other, bit by bit. For bool, true if they differ.
   x, other (integers or bool, shapes that broadcast) -> y (promoted dtype).          No gradient.
   example: accel.tensor { 6, 12 }:bitwise_xor(10) --> { 12, 6 }
   example: accel.tensor({ true, false }):bitwise_xor(accel.tensor { true, true }) --> { false, true } */
#include "ops/map/bitwise.h"

#define FWD(T, p, x, y) ((x) ^ (y))

ACI_LOOP2(bitwise_xor, int64_t, i64, FWD)
static const aci_map bitwise_xor_map = {2, NULL, NULL, bitwise_xor_i64};

AC_OP(bitwise_xor, .sig = "bitwise_xor(x: operand, other: operand) -> tensor",
      .shape = aci_bitwise_shape, .cpu = aci_map_cpu, .elementwise = true, .data = &bitwise_xor_map,
      .nondiff = true, .inplace = true);
