/* bitwise_not: y = x with every bit inverted, -1 - x for signed integers. For bool, true if x is false.
   x (integers or bool, any shape) -> y (same shape, dtype).          No gradient.
   example: accel.tensor { 0, 5, -1 }:bitwise_not() --> { -1, -6, 0 }
   example: accel.tensor({ true, false }):bitwise_not() --> { false, true } */
#include "ops/map/bitwise.h"

#define FWD(T, p, x) (~(x))
#define BOOL(T, p, x) ((x) == 0)
ACI_LOOP1(bitwise_not, int64_t, i64, FWD)
ACI_LOOP1(bool_not, int64_t, i64, BOOL)
static const aci_map bitwise_not_map = {1, NULL, NULL, bitwise_not_i64};
static const aci_map bool_not_map = {1, NULL, NULL, bool_not_i64};

static ac_status cpu(ac_frame *f, ac_err *e) {
  return aci_map_run(f, ARG_T(f, 0)->dtype == AC_BOOL ? &bool_not_map : &bitwise_not_map, e);
}

AC_OP(bitwise_not, .sig = "bitwise_not(x: tensor) -> tensor", .shape = aci_bitwise_shape,
      .cpu = cpu, .any_device = true, .elementwise = true, .data = &bitwise_not_map,
      .nondiff = true, .inplace = true);
