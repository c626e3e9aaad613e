/* The caching allocator of one device, as device.c and tests see it; everybody else uses ac_block_* of
 * accel/device.h.
 *
 * All bookkeeping lives on the host, outside the memory it describes, so one allocator serves the CPU, CUDA
 * and the meta device; on meta it moves the same numbers over the same cuts and maps nothing. */
#ifndef ACI_POOL_H
#define ACI_POOL_H
#include "device/device_impl.h"

/* The pool owns *dev from now on: it calls vt->close and frees dev once the device is closed and the last block is freed. */
ac_status aci_pool_new(ac_device *dev, size_t limit_bytes, ac_pool **out, ac_err *e);
/* The last reference to the device was released; blocks that are still held keep the pool. */
void aci_pool_close(ac_pool *p);

/* Told of every block that is made (born) and freed, under the pool's lock, on any thread; live: bytes handed out afterwards. Zero bytes are not
 * told of. */
typedef struct aci_pool_watch {
  void (*fn)(void *user, const ac_block *b, size_t bytes, ac_mem_class c, bool born, size_t live);
  void *user;
} aci_pool_watch;
/* w is borrowed until it is taken away by NULL. STATE: there is one already. *live: bytes handed out at this moment. */
ac_status aci_pool_set_watch(ac_device *d, const aci_pool_watch *w, size_t *live, ac_err *e);

/* For tests and debugging (ACCEL_POISON, ACCEL_ALLOC_FAIL). fail_at n > 0 fails the n-th allocation from now
 * on, n < 0 that one and all after it, 0 none. Set before other threads use the device. */
void aci_pool_debug_set(ac_device *d, bool poison, int64_t fail_at);
enum { ACI_POISON_FRESH = 0xFF, ACI_POISON_FREED = 0xFE };

#endif
