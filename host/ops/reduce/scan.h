/* Running sums and products along a dim, shared by cumsum and cumprod. */
#ifndef ACI_OPS_SCAN_H
#define ACI_OPS_SCAN_H
#include "ops/reduce/reduce.h"

/* (x, dim, dtype?) -> y */
ac_status aci_scan_shape(ac_frame *f, ac_err *e);
/* out (contiguous) := along dim, each element joined with all before it (reverse: after it). Added
 * and multiplied in double, integers wrap in i64. */
ac_status aci_scan_run(ac_frame *f, const ac_tensor *x, int dim, bool product, bool reverse,
                       ac_tensor *out, ac_err *e);

#endif
