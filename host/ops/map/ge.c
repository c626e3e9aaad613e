/* ge: y = x >= other, true if x is at least other. NaN compares as in IEEE 754.
   x, other (any shapes that broadcast) -> y (bool).          No gradient.
   example: accel.tensor { 1, 2, 3 }:ge(2) --> { false, true, true } */
#include "ops/map/map.h"

#define FWD(T, p, x, y) ((x) >= (y))

AC_MAP2B(ge, FWD, .sig = "ge(x: operand, other: operand) -> tensor", .alias = "greater_equal",
         .inplace = true, .copy_back = true);
