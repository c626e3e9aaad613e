/* lt: y = x < other, true if x is below other. NaN compares as in IEEE 754.
   x, other (any shapes that broadcast) -> y (bool).          No gradient.
   example: accel.tensor { 1, 2, 3 }:lt(2) --> { true, false, false } */
#include "ops/map/map.h"

#define FWD(T, p, x, y) ((x) < (y))

AC_MAP2B(lt, FWD, .sig = "lt(x: operand, other: operand) -> tensor", .alias = "less",
         .inplace = true, .copy_back = true);
