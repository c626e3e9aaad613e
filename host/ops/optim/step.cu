/* Numbers of an optimizer's call on CUDA: see step.cuh. */
#include "ops/optim/step.cuh"

aci_step_numbers aci_step_numbers_of(const ac_frame *f) {
  aci_step_numbers m = {};
  m.n = f->n_args;
  for (int i = 0; i < f->n_args; i++) {
    const ac_value *v = &f->args[i];
    m.value[i] = aci_step_option(v);
    if (v->kind != AC_T_NONE) m.given |= 1u << i;
    if (v->kind != AC_T_TENSOR) continue;
    m.ptr[i] = aci_data(v->tensor);
    m.dt[i] = v->tensor->dtype;
    m.writes |= f->op->mutates & 1u << i;
  }
  return m;
}
