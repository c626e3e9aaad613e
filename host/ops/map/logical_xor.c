/* logical_xor: y = true if exactly one of x and other is not 0 (NaN is not 0).
   x, other (any dtypes, shapes that broadcast) -> y (bool).          No gradient.
   example: accel.tensor { 1.0, 0.0, 0.0 }:logical_xor(accel.tensor { true, false, true }) --> { false, false, true } */
#include "ops/map/map.h"

#define FWD(T, p, x, y) (((x) != 0) ^ ((y) != 0))

AC_MAP2B(logical_xor, FWD, .sig = "logical_xor(x: operand, other: operand) -> tensor",
         .inplace = true, .copy_back = true);
