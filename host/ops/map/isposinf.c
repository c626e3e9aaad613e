/* isposinf: y = whether x is +inf. Never for integers.          x (any shape) -> y (bool, same shape)
   No gradient.
   example: accel.tensor { math.huge, -math.huge, 1.0 }:isposinf() --> { true, false, false } */
#include "ops/map/map.h"

#define FWD(T, p, x) ACI_BY_INT(x, 0, ((x) > 0) & ((x) == (x)) & ((x) - (x) != 0))

AC_MAP1B(isposinf, FWD, .sig = "isposinf(x: tensor) -> tensor");
