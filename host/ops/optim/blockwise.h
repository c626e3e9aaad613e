/* Shared by blockwise_step_ and blockwise_step_stochastic_: everything except the rounding of
 * 16-bit parameters. */
#ifndef ACI_OPS_BLOCKWISE_H
#define ACI_OPS_BLOCKWISE_H
#include "ops/core/op.h"

ac_status aci_blockwise_shape(ac_frame *f, ac_err *e);
ac_status aci_cpu_blockwise_step_(ac_frame *f, ac_err *e);
ac_status aci_cpu_blockwise_step_stochastic_(ac_frame *f, ac_err *e);

#endif
