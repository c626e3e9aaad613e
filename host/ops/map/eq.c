/* eq: y = x == other, true if x equals other. NaN compares as in IEEE 754.
   x, other (any shapes that broadcast) -> y (bool).          No gradient.
   example: accel.tensor { 1, 2 }:eq(accel.tensor { 1, 3 }) --> { true, false } */
#include "ops/map/map.h"

#define FWD(T, p, x, y) ((x) == (y))

AC_MAP2B(eq, FWD, .sig = "eq(x: operand, other: operand) -> tensor", .inplace = true,
         .copy_back = true);
