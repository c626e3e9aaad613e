/* The gradient of ops that show each part of a dim several times. Called by tile.c and
 * repeat_interleave.c. */
#ifndef ACI_OPS_REPEATS_H
#define ACI_OPS_REPEATS_H
#include "ops/core/op.h"

/* dy summed over repeats: its dim d holds times[d] * shape[d] positions, either the whole dim again
 * and again (blocks) or each position several times in a row. Returns a tensor of this shape. */
ac_tensor *aci_sum_repeats(ac_expr *x, ac_tensor *dy, int ndim, const int64_t *shape,
                           const int64_t *times, bool blocks);

#endif
