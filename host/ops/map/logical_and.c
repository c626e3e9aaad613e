/* logical_and: y = true if neither x nor other is 0 (NaN is not 0).
   x, other (any dtypes, shapes that broadcast) -> y (bool).          No gradient.
   example: accel.tensor { 1.0, 2.0, 0.0 }:logical_and(accel.tensor { true, false, true }) --> { true, false, false } */
#include "ops/map/map.h"

#define FWD(T, p, x, y) (((x) != 0) & ((y) != 0))

AC_MAP2B(logical_and, FWD, .sig = "logical_and(x: operand, other: operand) -> tensor",
         .inplace = true, .copy_back = true);
