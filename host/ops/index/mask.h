/* Shared by masked_select and nonzero: tensors are seen as runs of elements of a broadcast shape,
 * counted in chunks before anything is written, so that every chunk knows the place of its
 * results. */
#ifndef ACI_OPS_MASK_H
#define ACI_OPS_MASK_H
#include "ops/index/index.h"

enum { ACI_MASK_CHUNK = 1 << 15 };

/* The elements of t, broadcast to this shape, in a row-major run: its own memory if that is one,
 * otherwise a copy held by *block (to be freed by the caller). */
ac_status aci_broadcast_data(ac_frame *f, const ac_tensor *t, int ndim, const int64_t *shape,
                             const void **data, ac_block **block, ac_err *e);

/* How many bytes of each chunk of mask are not 0, as the number before it: first[chunks] is the
 * total. */
int64_t aci_mask_count(ac_team *team, const uint8_t *mask, int64_t n, int64_t *first);
static inline int64_t aci_mask_chunks(int64_t n) {
  return (n + ACI_MASK_CHUNK - 1) / ACI_MASK_CHUNK;
}

#endif
