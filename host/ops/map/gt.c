/* gt: y = x > other, true if x is above other. NaN compares as in IEEE 754.
   x, other (any shapes that broadcast) -> y (bool).          No gradient.
   example: accel.tensor { 1, 2, 3 }:gt(2) --> { false, false, true } */
#include "ops/map/map.h"

#define FWD(T, p, x, y) ((x) > (y))

AC_MAP2B(gt, FWD, .sig = "gt(x: operand, other: operand) -> tensor", .alias = "greater",
         .inplace = true, .copy_back = true);
