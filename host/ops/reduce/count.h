/* Shared by any, all and count_nonzero: the number of elements under an output that are not 0 (NaN
 * is not). */
#ifndef ACI_OPS_COUNT_H
#define ACI_OPS_COUNT_H
#include "ops/reduce/reduction.h"

/* out[0] := finish applied to word 0 (u), the number. NULL: the number itself. */
ac_status aci_count_run(ac_frame *f,
                        void (*finish)(aci_word *, const aci_word *, int64_t, int64_t, double),
                        ac_err *e);

#endif
