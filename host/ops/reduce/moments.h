/* Shared by var and std. */
#ifndef ACI_OPS_MOMENTS_H
#define ACI_OPS_MOMENTS_H
#include "ops/reduce/reduce.h"

/* (x, dim?, keepdim, correction?, unbiased?) -> y */
ac_status aci_moments_shape(ac_frame *f, ac_err *e);
/* out[0] := sum of (x - mean)^2 / max(0, n - correction), or its root. */
ac_status aci_moments_run(ac_frame *f, bool root, ac_err *e);
/* Gradient of the variance, given that by it (of the shape of the result). */
void aci_moments_grad(ac_grad *g, ac_tensor *dvar);

#endif
