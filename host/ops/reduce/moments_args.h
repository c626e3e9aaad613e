/* The correction of var and std, for the CPU and for device modules: 1 unless it is given, or by its old
 * name `unbiased`: 1 if that is true, else 0. */
#ifndef ACI_OPS_MOMENTS_ARGS_H
#define ACI_OPS_MOMENTS_ARGS_H
#include "accel/opdef.h"

/* args: those of the call, from `correction` on. */
static inline double aci_moments_correction(const ac_value *args) {
  if (args[1].kind == AC_T_BOOL) return args[1].b ? 1 : 0;
  if (args[0].kind != AC_T_SCALAR) return 1;
  return args[0].scalar.kind == AC_SCALAR_FLOAT ? args[0].scalar.f : (double)args[0].scalar.i;
}

#endif
