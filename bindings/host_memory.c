/* Lua's memory in a host: small objects from the free lists of base/small.h, because the collector frees boxes by the
 * thousand. core/box.c is told of boxes that come back: they have no finalizers. */
#include <stdlib.h>
#include <string.h>

#include "base/small.h"
#include "host_impl.h"

enum { SMALL = 512 }; /* bytes; boxes and most Lua objects are below */

void *lac_host_allocate(void *ud, void *p, size_t old, size_t n) {
  const ac_host *h = ud;
  if (p == NULL) old = 0; /* then it is a type */
  if (n == 0) {
    if (old == h->box_block) lac_box_freed(h->S, (const lac_box *)((const char *)p + old) - 1);
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

static size_t lua_bytes(lua_State *L) {
  return ((size_t)lua_gc(L, LUA_GCCOUNT) << 10) + (size_t)lua_gc(L, LUA_GCCOUNTB);
}

/* How much Lua puts before a box is not in its interface, so one is made and measured. */
void lac_host_watch_boxes(ac_host *h) {
  lua_State *L = h->L;
  lua_gc(L, LUA_GCSTOP);
  const size_t before = lua_bytes(L);
  lac_box_new(L, h->S);
  h->box_block = lua_bytes(L) - before;
  lua_pop(L, 1);
  lac_boxes_watched(L, h->S);
  lua_gc(L, LUA_GCRESTART);
}
