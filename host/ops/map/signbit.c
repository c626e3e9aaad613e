/* signbit: y = whether the sign bit of x is set: true for negative numbers, -0 and NaN with that bit.
   x (any shape) -> y (bool, same shape)          No gradient.
   example: accel.tensor { -2.0, 3, -0.0 }:signbit() --> { true, false, true } */
#include "ops/map/map.h"

#define FWD(T, p, x) (m_copysign((T)1, x) < 0)
#define FWD_INT(T, p, x) ((x) < 0)
ACI_LOOP1(signbit, float, f32, FWD)
ACI_LOOP1(signbit, double, f64, FWD)
ACI_LOOP1(signbit, int64_t, i64, FWD_INT)
static const aci_map signbit_map = {1, signbit_f32, signbit_f64, signbit_i64};

AC_OP(signbit, .sig = "signbit(x: tensor) -> tensor", .shape = aci_map_shape_bool,
      .cpu = aci_map_cpu, .elementwise = true, .data = &signbit_map, .nondiff = true);
