/* signbit: y = whether the sign bit of x is set: true for negative numbers, -0 and NaN with that bit.
   x (any shape) -> y (bool, same shape)          No gradient.
   example: accel.tensor { -2.0, 3, -0.0 }:signbit() --> { true, false, true } */
#include "ops/map/map.h"

#define FWD(T, p, x) ACI_BY_INT(x, (x) < 0, m_copysign((T)1, x) < 0)

AC_MAP1B(signbit, FWD, .sig = "signbit(x: tensor) -> tensor");
