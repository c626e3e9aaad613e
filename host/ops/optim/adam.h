/* Shared by adam_step_ and adamw_step_: everything except the place of the weight decay. */
#ifndef ACI_OPS_ADAM_H
#define ACI_OPS_ADAM_H
#include "ops/core/op.h"

ac_status aci_adam_shape(ac_frame *f, ac_err *e);
/* The kernels: in adamw's weights shrink by lr * weight_decay, in adam's weight_decay * p joins the
 * gradient. */
ac_status aci_cpu_adam_step_(ac_frame *f, ac_err *e);
ac_status aci_cpu_adamw_step_(ac_frame *f, ac_err *e);

#endif
