/* gcd: y = the greatest common divisor of |x| and |other|, 0 if both are 0.
   x, other (integers, any shapes that broadcast) -> y          No gradient.
   example: accel.tensor { 12, -18, 0 }:gcd(accel.tensor { 8, 27, 5 }) --> { 4, 9, 5 } */
#include "ops/map/bitwise.h"

static inline AC_HOSTDEV int64_t divisor(int64_t x, int64_t y) {
  uint64_t a = x < 0 ? 0 - (uint64_t)x : (uint64_t)x, b = y < 0 ? 0 - (uint64_t)y : (uint64_t)y;
  while (b != 0) {
    const uint64_t r = a % b;
    a = b;
    b = r;
  }
  return (int64_t)a;
}
#define FWD(T, p, x, y) divisor(x, y)
ACI_LOOP2(gcd, int64_t, i64, FWD)
static const aci_map gcd_map = {2, NULL, NULL, gcd_i64};

static ac_status shape(ac_frame *f, ac_err *e) {
  if (ac_frame_promote(f, 0, 1) == AC_BOOL)
    return AC_FAIL(e, DTYPE, "is not defined for bool; cast to an integer dtype first");
  return aci_bitwise_shape(f, e);
}

AC_OP(gcd, .sig = "gcd(x: operand, other: operand) -> tensor", .shape = shape, .cpu = aci_map_cpu,
      .elementwise = true, .data = &gcd_map, .nondiff = true, .inplace = true,
      .flops_per_element = 20);
