/* isnan: y = true if x is NaN. Never for integers.          x (any shape) -> y (bool, same shape)
   No gradient.
   example: accel.tensor { 0 / 0, 1.0, math.huge }:isnan() --> { true, false, false } */
#include "ops/map/map.h"

#define FWD(T, p, x) ACI_BY_INT(x, 0, (x) != (x))

AC_MAP1B(isnan, FWD, .sig = "isnan(x: tensor) -> tensor");
