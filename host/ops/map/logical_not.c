/* logical_not: y = true if x is 0.          x (any dtype, any shape) -> y (bool, same shape)
   No gradient.
   example: accel.tensor { 0, 3, -1 }:logical_not() --> { true, false, false } */
#include "ops/map/map.h"

#define FWD(T, p, x) ((x) == 0)

AC_MAP1B(logical_not, FWD, .sig = "logical_not(x: tensor) -> tensor", .inplace = true,
         .copy_back = true);
