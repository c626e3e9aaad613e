/* isinf: y = true if x is infinite, of either sign. Never for integers.
   x (any shape) -> y (bool, same shape)
   No gradient.
   example: accel.tensor { 0 / 0, 1.0, -math.huge }:isinf() --> { false, false, true } */
#include "ops/map/map.h"

#define FWD(T, p, x) ACI_BY_INT(x, 0, ((x) == (x)) & ((x) - (x) != 0))

AC_MAP1B(isinf, FWD, .sig = "isinf(x: tensor) -> tensor");
