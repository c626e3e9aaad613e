/* The caching allocator of one device, for device.c and tests. All other code uses ac_block_* of
 * accel/device.h.
 *
 * All records live on the host, outside the memory they describe, so one allocator serves the CPU,
 * CUDA and the meta device. On meta it moves the same numbers over the same cuts and maps
 * nothing. */
#ifndef ACI_POOL_H
#define ACI_POOL_H
#include "device/device_impl.h"

/* The pool owns *dev from now on: it calls vt->close and frees dev once the device is closed and
 * the last block is freed. */
ac_status aci_pool_new(ac_device *dev, size_t limit_bytes, ac_pool **out, ac_err *e);
/* The last reference to the device was released. Blocks that are still held keep the pool. */
void aci_pool_close(ac_pool *p);

/* A block of memory that somebody else owns and keeps until the block is freed. It is counted,
 * against the limit as well, as if it were the pool's, but no birth is reported. For bytes that can
 * be used in place (host/offload). ptr: NULL on meta. */
ac_status aci_block_wrap(ac_device *d, void *ptr, size_t bytes, ac_block **out, ac_err *e);

/* Called for every block that is made (born) and freed, under the pool's lock, on any thread. live:
 * bytes handed out afterwards. Blocks of zero bytes are not reported. */
typedef struct aci_pool_watch {
  void (*fn)(void *user, const ac_block *b, size_t bytes, ac_mem_class c, bool born, size_t live);
  void *user;
} aci_pool_watch;
/* w is borrowed until it is taken away by NULL. STATE: there is one already. *live: bytes handed
 * out at this moment. */
ac_status aci_pool_set_watch(ac_device *d, const aci_pool_watch *w, size_t *live, ac_err *e);

/* Told of every segment before its memory goes back to the system, under the pool's lock, on any
 * thread: who has made it known elsewhere takes that back. Borrowed from adding to removing. */
typedef struct aci_unmap_hook {
  void (*fn)(void *user, void *base, size_t bytes);
  void *user;
  struct aci_unmap_hook *next; /* the pool's */
} aci_unmap_hook;
void aci_pool_add_unmap_hook(ac_device *d, aci_unmap_hook *h);
void aci_pool_remove_unmap_hook(ac_device *d, aci_unmap_hook *h);
/* The segment that contains p. False: p is not memory of this pool. */
bool aci_pool_segment(ac_device *d, const void *p, void **base, size_t *bytes);

/* From now on blocks that this thread allocates for stream NULL come from memory that is kept for
 * `key` alone, until a call with NULL. key is an address of the caller's. Nobody else gets that
 * memory, freed or not, and it stays mapped. Each replay of a recorded step writes the step's
 * memory again. */
void aci_pool_divert(ac_device *d, const void *key);
/* Whether a block of the device is memory kept for the key that is diverted to now. */
bool aci_pool_is_diverted(ac_device *d, const ac_block *b);
/* Memory kept for key returns to the pool as its blocks are freed. */
void aci_pool_undivert(ac_device *d, const void *key);

/* As ac_device_set_source, for a module that may provide memory of a class if the host program has
 * set no source. False: a source is set, or setting it failed. */
bool aci_pool_offer_source(ac_device *d, ac_mem_class c, const ac_mem_source *s);
/* The class uses the device again, unless a source other than the offered one (identified by its
 * user) was set meanwhile. */
void aci_pool_withdraw_source(ac_device *d, ac_mem_class c, const void *user);

/* For tests and debugging (ACCEL_POISON, ACCEL_ALLOC_FAIL). fail_at n > 0 fails the n-th allocation
 * from now on, n < 0 that one and all after it, 0 none. Set before other threads use the device. */
void aci_pool_debug_set(ac_device *d, bool poison, int64_t fail_at);
enum { ACI_POISON_FRESH = 0xFF, ACI_POISON_FREED = 0xFE };

#endif
