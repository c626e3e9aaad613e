/* le: y = x <= other, true if x is at most other. NaN compares as in IEEE 754.
   x, other (any shapes that broadcast) -> y (bool).          No gradient.
   example: accel.tensor { 1, 2, 3 }:le(2) --> { true, true, false } */
#include "ops/map/map.h"

#define FWD(T, p, x, y) ((x) <= (y))

AC_MAP2B(le, FWD, .sig = "le(x: operand, other: operand) -> tensor", .alias = "less_equal",
         .inplace = true, .copy_back = true);
