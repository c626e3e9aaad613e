/* The kernels of cross_entropy. Arguments of a forward frame: input, target, weight, ignore_index,
 * reduction, label_smoothing; a backward frame has dy in front. */
#ifndef ACI_OPS_CROSS_ENTROPY_H
#define ACI_OPS_CROSS_ENTROPY_H
#include "ops/reduce/reduce.h"

/* mask: the dim of classes. Target classes are checked before anything is written. */
ac_status aci_ce_run(ac_frame *f, uint32_t mask, ac_err *e);
ac_status aci_ce_run_backward(ac_frame *f, uint32_t mask, ac_err *e);

#endif
