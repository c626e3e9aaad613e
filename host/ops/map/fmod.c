/* fmod: y = x - other * trunc(x / other), with the sign of x, as C's fmod.
   x, other (any shapes that broadcast) -> y
   gradient: dx = dy, dother = -dy * trunc(x / other), each summed over the dims that were broadcast.
   example: accel.tensor { 5.5, -5.5 }:fmod(2) --> { 1.5, -1.5 } */
#include "ops/map/modulo.h"

#define FWD32(T, p, x, y) fmodf(x, y)
#define FWD64(T, p, x, y) fmod(x, y)
#define FWDI(T, p, x, y) ((y) == -1 ? 0 : (x) % (y))
ACI_LOOP2(fmod, float, f32, FWD32)
ACI_LOOP2(fmod, double, f64, FWD64)
ACI_LOOP2(fmod, int64_t, i64, FWDI)
static const aci_map fmod_map = {2, fmod_f32, fmod_f64, fmod_i64};

AC_OP(fmod, .sig = "fmod(x: operand, other: operand) -> tensor", .shape = aci_modulo_shape,
      .cpu = aci_modulo_cpu, .any_device = true, .data = &fmod_map, .grad = aci_modulo_grad,
      .save = AC_SAVE_IN(0) | AC_SAVE_IN(1) | AC_SAVE_OUT(0), .inplace = true,
      .flops_per_element = 4);
