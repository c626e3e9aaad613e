/* What adam_step_ and adamw_step_ share: all but where the decay of the weights goes in. */
#ifndef ACI_OPS_ADAM_H
#define ACI_OPS_ADAM_H
#include "ops/op.h"

ac_status aci_adam_shape(ac_frame *f, ac_err *e);
/* Arguments as in the signatures of both ops, which are the same.
 * decoupled: weights shrink by lr * weight_decay; else weight_decay * p joins the gradient. */
ac_status aci_adam_run(ac_frame *f, bool decoupled, ac_err *e);

#endif
