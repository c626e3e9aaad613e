/* Small objects that come and go with every call: heads of tensors and storages, gradient nodes.
 *
 * A free list per thread and size class in front of malloc. The collector frees boxes by the
 * thousand, far beyond the capacity of malloc's caches, so the lists hold up to ACI_SMALL_KEEP
 * each. Freeing in another thread than the allocating one is fine. Under a sanitizer this is
 * malloc. */
#ifndef ACI_SMALL_H
#define ACI_SMALL_H
#include <stddef.h>

/* Uninitialised memory, aligned for any object. NULL without memory. */
void *aci_small_alloc(size_t bytes);
/* bytes as given to aci_small_alloc. */
void aci_small_free(void *p, size_t bytes);

#endif
