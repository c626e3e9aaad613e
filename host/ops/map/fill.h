/* Writing one value everywhere, shared by fill_, zero_ and the *_like ops. */
#ifndef ACI_OPS_FILL_H
#define ACI_OPS_FILL_H
#include "ops/core/op.h"

/* Is v representable in dt at all? Floats outside of the range of integers, and NaN, are not:
 * DTYPE. */
ac_status aci_fill_check(ac_scalar v, ac_dtype dt, ac_err *e);
/* out[0] := v, any strides. */
ac_status aci_fill(ac_frame *f, ac_scalar v, ac_err *e);
/* Shape rule of op(x, ..., dtype?, device?): like x, in the dtype of argument dtype_arg and on the
 * device of the one after it. */
ac_status aci_like_shape(ac_frame *f, int dtype_arg, ac_err *e);

#endif
