/* logical_or: y = true if x or other is not 0 (NaN is not 0).
   x, other (any dtypes, shapes that broadcast) -> y (bool).          No gradient.
   example: accel.tensor { 1.0, 0.0, 0.0 }:logical_or(accel.tensor { true, false, true }) --> { true, false, true } */
#include "ops/map/map.h"

#define FWD(T, p, x, y) (((x) != 0) | ((y) != 0))

AC_MAP2B(logical_or, FWD, .sig = "logical_or(x: operand, other: operand) -> tensor",
         .inplace = true, .copy_back = true);
