/* Shared by remainder, fmod and divisions that round: the check for integer divisors of zero, and
 * the gradient. */
#ifndef ACI_OPS_MODULO_H
#define ACI_OPS_MODULO_H
#include "ops/map/map.h"

ac_status aci_modulo_shape(ac_frame *f, ac_err *e); /* refuses a result of bool */
ac_status aci_modulo_cpu(ac_frame *f, ac_err *e);
void aci_modulo_grad(ac_grad *g);

/* The map of floor_divide, which div runs with rounding_mode "floor". */
extern const aci_map aci_floor_divide_map;

#endif
