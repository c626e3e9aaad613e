/* The allocator of sandbox_arena.h. Blocks are of 16, 24, 32, 48, 64, 96 ... bytes. A freed one
 * waits in the list of its class. */
#include "sandbox_arena.h"

#include <string.h>

static int class_of(size_t n, size_t *bytes) {
  int c = 0;
  size_t b = 16;
  for (; c < LAC_ARENA_CLASSES - 1; c++) {
    const size_t size = (c & 1) != 0 ? b + b / 2 : b;
    if (n <= size) {
      *bytes = (size + 15) & ~(size_t)15;
      return c;
    }
    if ((c & 1) != 0) b *= 2;
  }
  return -1;
}

static void *take(lac_arena *a, size_t n) {
  size_t bytes;
  const int c = class_of(n, &bytes);
  if (c < 0) return NULL;
  if (a->free[c] != NULL) {
    void *p = a->free[c];
    memcpy(&a->free[c], p, sizeof(void *));
    return p;
  }
  if (bytes > a->size - a->used) return NULL;
  void *p = a->base + a->used;
  a->used += bytes;
  return p;
}

void *lac_arena_alloc(void *arena, void *p, size_t old, size_t n) {
  lac_arena *a = arena;
  size_t had = 0, bytes;
  /* without a block, `old` is a kind of object */
  const int was = p != NULL ? class_of(old, &had) : -1;
  if (n != 0 && p != NULL && class_of(n, &bytes) == was) return p;
  void *q = n == 0 ? NULL : take(a, n);
  if (n != 0 && q == NULL) return p != NULL && n <= had ? p : NULL; /* shrinking never fails */
  if (p != NULL) {
    if (q != NULL) memcpy(q, p, old < n ? old : n);
    memcpy(p, &a->free[was], sizeof(void *));
    a->free[was] = p;
  }
  return q;
}
