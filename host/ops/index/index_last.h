/* The write that stays of several to one position: the last one, in the order of the index. The
 * gradients of scatter, index_copy and index_put use it. */
#ifndef ACI_OPS_INDEX_LAST_H
#define ACI_OPS_INDEX_LAST_H
#include "ops/core/op.h"

/* d, the gradient picked at every position written, with zeros if a later write to the same
 * position won. For the n index tensors of an op that writes the dims of these extents. wins is
 * broadcast over `inner` dims after its own. */
ac_tensor *aci_where_last(ac_expr *x, ac_tensor *d, ac_tensor *const *indices, int n,
                          const int64_t *extents, int inner);

#endif
