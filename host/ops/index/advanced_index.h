/* Several index tensors at once: x[i, :, j] names positions (i[b], j[b]) for every b of the shape
 * that the index tensors broadcast to. Called by index, index_put, index_copy and index_fill. */
#ifndef ACI_OPS_ADVANCED_INDEX_H
#define ACI_OPS_ADVANCED_INDEX_H
#include "ops/index/index.h"
#include "ops/index/advanced_index_plan.h"

/* For every b: sum over the index tensors of value * weight[dim]. Values are checked against shape.
 * Negative ones count from the end. Scratch, freed with ac_block_free(*block). */
ac_status aci_advanced_index_offsets(ac_frame *f, const aci_advanced_index *p, int arg,
                                     const int64_t *shape, const int64_t *weight,
                                     const int64_t **offsets, ac_block **block, ac_err *e);
/* out (contiguous, outer x batch x inner) := the positions of x. */
void aci_advanced_index_gather(ac_frame *f, const aci_advanced_index *p, ac_tensor *out,
                               const ac_tensor *x, const int64_t *offsets);
/* y's positions := values, in the order of b. If two name one position, the last stays. values:
 * outer x batch x inner contiguous elements of y's dtype, or one for all of them (single). */
void aci_advanced_index_put(ac_frame *f, const aci_advanced_index *p, ac_tensor *y,
                            const void *values, bool single, const int64_t *offsets);
/* y's positions += values, in the order of b. Added in the compute type, rounded once. offsets as
 * for y's own strides. */
ac_status aci_advanced_index_add(ac_frame *f, const aci_advanced_index *p, int arg, ac_tensor *y,
                                 const void *values, bool single, ac_err *e);

#endif
