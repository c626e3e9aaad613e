/* floor_divide: y = floor(x / other), as Lua's //: the whole number below the exact quotient, whatever x / other
   rounds to.
   x, other (any shapes that broadcast) -> y (promoted dtype, integers stay integers). Not for bool.
   gradient: 0.
   example: accel.tensor { 7, -7 }:floor_divide(2) --> { 3, -4 }
   example: accel.tensor { 5.5, -5.5 } // accel.tensor { 2.0, 2.0 } --> { 2, -3 } */
#include "ops/map/modulo.h"

/* (x - remainder) / other is whole except for rounding. A divisor of zero gives the result of
 * division. */
#define FLOOR_DIVIDE(T, sfx)                           \
  static inline AC_INLINE T quotient_##sfx(T x, T y) { \
    T plain = x / y, r = y == 0 ? 0 : MOD_##sfx(x, y); \
    T q = (x - r) / y;                                 \
    q = r != 0 && (r < 0) != (y < 0) ? q - 1 : q;      \
    T w = m_rint(q);                                   \
    w = w == 0 ? m_copysign((T)0, plain) : w;          \
    return y == 0 ? plain : w;                         \
  }
#define MOD_f32(x, y) fmodf(x, y)
#define MOD_f64(x, y) fmod(x, y)
FLOOR_DIVIDE(float, f32)
FLOOR_DIVIDE(double, f64)
static inline AC_INLINE int64_t quotient_i64(int64_t x, int64_t y) {
  if (y == -1) return (int64_t)(0 - (uint64_t)x);
  int64_t q = x / y;
  return x % y != 0 && (x < 0) != (y < 0) ? q - 1 : q;
}
#define FWD32(T, p, x, y) quotient_f32(x, y)
#define FWD64(T, p, x, y) quotient_f64(x, y)
#define FWDI(T, p, x, y) quotient_i64(x, y)
ACI_LOOP2(floor_divide, float, f32, FWD32)
ACI_LOOP2(floor_divide, double, f64, FWD64)
ACI_LOOP2(floor_divide, int64_t, i64, FWDI)
const aci_map aci_floor_divide_map = {2, floor_divide_f32, floor_divide_f64, floor_divide_i64};

static void grad(ac_grad *g) {
  aci_grad_zero(g, 0);
  aci_grad_zero(g, 1);
}

AC_OP(floor_divide, .sig = "floor_divide(x: operand, other: operand) -> tensor",
      .shape = aci_modulo_shape, .cpu = aci_modulo_cpu, .any_device = true, .elementwise = true,
      .data = &aci_floor_divide_map, .grad = grad, .inplace = true, .flops_per_element = 6);
