/* remainder: y = x - other * floor(x / other), with the sign of other, as Lua's %.
   x, other (any shapes that broadcast) -> y
   gradient: dx = dy, dother = -dy * floor(x / other), each summed over the dims that were broadcast.
   example: accel.tensor { 5.5, -5.5 }:remainder(2) --> { 1.5, 0.5 } */
#include "ops/map/modulo.h"

static inline AC_INLINE float mod_f32(float x, float y) {
  float r = fmodf(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
static inline AC_INLINE double mod_f64(double x, double y) {
  double r = fmod(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
static inline AC_INLINE int64_t mod_i64(int64_t x, int64_t y) {
  int64_t r = y == -1 ? 0 : x % y;
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
#define FWD32(T, p, x, y) mod_f32(x, y)
#define FWD64(T, p, x, y) mod_f64(x, y)
#define FWDI(T, p, x, y) mod_i64(x, y)
ACI_LOOP2(remainder, float, f32, FWD32)
ACI_LOOP2(remainder, double, f64, FWD64)
ACI_LOOP2(remainder, int64_t, i64, FWDI)
static const aci_map remainder_map = {2, remainder_f32, remainder_f64, remainder_i64};

AC_OP(remainder, .sig = "remainder(x: operand, other: operand) -> tensor",
      .shape = aci_modulo_shape, .cpu = aci_modulo_cpu, .any_device = true, .data = &remainder_map,
      .grad = aci_modulo_grad, .save = AC_SAVE_IN(0) | AC_SAVE_IN(1) | AC_SAVE_OUT(0),
      .inplace = true, .flops_per_element = 4);
