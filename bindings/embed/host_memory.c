/* Lua's memory in a host: small objects from the free lists of base/small.h, because the collector
 * frees boxes by the thousand, or the program's allocator (accel/host.h). Bytes are counted for the
 * limit of a host. */
#include <stdlib.h>
#include <string.h>

#include "base/small.h"
#include "host_impl.h"

enum { SMALL = 512 }; /* bytes. Boxes and most Lua objects are smaller */

static inline void *allocate(void *p, size_t old, size_t n) {
  if (n == 0) {
    if (old <= SMALL) aci_small_free(p, old);
    else free(p);
    return NULL;
  }
  if (old > SMALL && n > SMALL) return realloc(p, n);
  void *q = n <= SMALL ? aci_small_alloc(n) : malloc(n);
  if (q == NULL) return n <= old ? p : NULL; /* shrinking may not fail */
  if (p == NULL) return q;
  memcpy(q, p, old < n ? old : n);
  if (old <= SMALL) aci_small_free(p, old);
  else free(p);
  return q;
}

static void *allocate_plain(void *ud, void *p, size_t old, size_t n) {
  ac_host *h = ud;
  if (p == NULL) old = 0; /* then it is a type */
  else if (n < old && atomic_load(&h->held) > 0) lac_host_hold(h);
  return allocate(p, old, n);
}

/* The same with a limit, or by the program's allocator. */
static void *allocate_counted(void *ud, void *p, size_t old, size_t n) {
  ac_host *h = ud;
  if (p == NULL) old = 0;
  else if (n < old && atomic_load(&h->held) > 0) lac_host_hold(h);
  if (n > old && h->o.lua_memory != 0 && h->lua_bytes + (n - old) > h->o.lua_memory) return NULL;
  void *q = h->o.alloc != NULL ? h->o.alloc(h->o.user, p, old, n) : allocate(p, old, n);
  if (q != NULL || n == 0) h->lua_bytes += n - old;
  return q;
}

lua_Alloc lac_host_allocator(const ac_host *h) {
  return h->o.alloc != NULL || h->o.lua_memory != 0 ? allocate_counted : allocate_plain;
}
