/* Binary search in ascending sequences, for searchsorted and bucketize. */
#ifndef ACI_OPS_SEARCH_H
#define ACI_OPS_SEARCH_H
#include "ops/index/index.h"

/* Shape rule: positions of argument `values` (tensor or number) in argument `sequence`, which has
 * one dim or, but for the last, the extents of values. */
ac_status aci_search_shape(ac_frame *f, int sequence, int values, ac_err *e);
/* right: after equal elements, otherwise before them. */
ac_status aci_search_run(ac_frame *f, int sequence, int values, bool right, ac_err *e);

#endif
