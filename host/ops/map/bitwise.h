/* Shared by the bitwise ops: formulas of integers and truth values alone, and the shape rule that
 * enforces this. */
#ifndef ACI_OPS_BITWISE_H
#define ACI_OPS_BITWISE_H
#include "ops/map/map.h"

/* Shape rule: broadcast and promoted as in other maps. Floats are refused. */
static inline ac_status aci_bitwise_shape(ac_frame *f, ac_err *e) {
  const aci_map *m = f->desc->data;
  for (int i = 0; i < m->n_in; i++) {
    const ac_value *v = &f->args[i];
    const bool number = v->kind == AC_T_SCALAR;
    if (number ? v->scalar.kind == AC_SCALAR_FLOAT : ac_dtype_is_float((ac_dtype)v->tensor->dtype))
      return AC_FAIL(e, DTYPE,
                     "takes integers and bool, argument %d is %s; cast it, or compare it first",
                     i + 1, number ? "a float number" : ac_dtype_name((ac_dtype)v->tensor->dtype));
  }
  return aci_map_shape(f, e);
}

#endif
