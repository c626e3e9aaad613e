/* Lua's memory in a host: small objects from the free lists of base/small.h, because the collector
 * frees boxes by the thousand. */
#include <stdlib.h>
#include <string.h>

#include "base/small.h"
#include "host_impl.h"

enum { SMALL = 512 }; /* bytes. Boxes and most Lua objects are smaller */

void *lac_host_allocate(void *ud, void *p, size_t old, size_t n) {
  (void)ud;
  if (p == NULL) old = 0; /* then it is a type */
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
