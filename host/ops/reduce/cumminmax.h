/* Cumulative minima and maxima along a dim, shared by cummax and cummin. */
#ifndef ACI_OPS_CUMMINMAX_H
#define ACI_OPS_CUMMINMAX_H
#include "ops/reduce/reduce.h"

/* (x, dim) -> values, indices */
ac_status aci_cumminmax_shape(ac_frame *f, ac_err *e);
ac_status aci_cumminmax_run(ac_frame *f, bool min, ac_err *e);
void aci_cumminmax_grad(ac_grad *g);

#endif
