/* Blocks of memory that somebody else owns, counted by a pool as its own (pool.h). Called by
 * host/offload, whose bytes can be used in place: in host memory, or in a mapped file. */
#include <stdlib.h>

#include "base/base_impl.h"
#include "device/pool_impl.h"

/* Room under the limit, as for a segment: free memory goes back to the system first. */
static bool reserve(ac_pool *p, size_t bytes) {
  aci_budget *b = &p->budget;
  for (int i = 0; b->limit != 0 && (bytes > b->limit || b->reserved > b->limit - bytes); i++) {
    if (i == 0 && aci_pool_give_back(p) > 0) continue;
    if (i > 1 || !aci_budget_release(b, bytes)) return false;
  }
  b->reserved += bytes;
  return true;
}

ac_status aci_block_wrap(ac_device *d, void *ptr, size_t bytes, ac_block **out, ac_err *e) {
  static const aci_owner owner = ACI_OWNER_FOREIGN;
  ac_pool *p = d->pool;
  *out = NULL;
  any_block *b = calloc(1, sizeof *b);
  if (b == NULL || bytes > SIZE_MAX / 4) {
    free(b);
    return AC_FAIL(e, OOM, "%s: no memory for a block's head", d->name);
  }
  bytes = (bytes + ACI_POOL_QUANTUM - 1) & ~(size_t)(ACI_POOL_QUANTUM - 1);
  *b = (any_block){.head = {.ptr = ptr, .pool = p, .bytes = bytes}, .owner = &owner};
  const bool own = aci_biased_lock(&p->lock);
  p->n_allocs++;
  const bool told = p->fail_at != 0 && aci_pool_told_to_fail(p);
  if (told || !reserve(p, bytes)) {
    const ac_status st =
        aci_pool_out_of_memory(p, bytes, told ? "failed by ACCEL_ALLOC_FAIL" : "", e);
    aci_biased_unlock(&p->lock, own);
    free(b);
    return st;
  }
  p->live_blocks++;
  p->live_bytes += bytes;
  if (p->live_bytes > p->peak_bytes) p->peak_bytes = p->live_bytes;
  if (p->watch != NULL && bytes > 0)
    p->watch->fn(p->watch->user, &b->head, bytes, AC_MEM_ACTIVATION, true, p->live_bytes);
  aci_biased_unlock(&p->lock, own);
  *out = &b->head;
  return AC_OK;
}
