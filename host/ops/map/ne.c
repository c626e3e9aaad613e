/* ne: y = x != other, true if x differs from other. NaN compares as in IEEE 754.
   x, other (any shapes that broadcast) -> y (bool).          No gradient.
   example: accel.tensor { 1, 2 }:ne(accel.tensor { 1, 3 }) --> { false, true } */
#include "ops/map/map.h"

#define FWD(T, p, x, y) ((x) != (y))

AC_MAP2B(ne, FWD, .sig = "ne(x: operand, other: operand) -> tensor", .alias = "not_equal",
         .inplace = true, .copy_back = true);
