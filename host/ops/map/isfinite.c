/* isfinite: y = true if x is neither infinite nor NaN. Always for integers.
   x (any shape) -> y (bool, same shape)
   No gradient.
   example: accel.tensor { 0 / 0, 1.0, math.huge }:isfinite() --> { false, true, false } */
#include "ops/map/map.h"

#define FWD(T, p, x) ACI_BY_INT(x, 1, (x) - (x) == 0)

AC_MAP1B(isfinite, FWD, .sig = "isfinite(x: tensor) -> tensor");
