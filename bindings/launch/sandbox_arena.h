/* Memory of a sandbox: all of it is mapped before the code runs, since no system call is allowed
 * then. Lua's allocator over it, with free lists by size. A request that does not fit is refused,
 * which Lua turns into its error "not enough memory". */
#ifndef LAC_SANDBOX_ARENA_H
#define LAC_SANDBOX_ARENA_H
#include <stddef.h>

enum { LAC_ARENA_CLASSES = 64 };
typedef struct lac_arena {
  char *base;
  size_t used, size;
  void *free[LAC_ARENA_CLASSES]; /* blocks of 16 << (class / 2) or half as much again */
} lac_arena;

void *lac_arena_alloc(void *arena, void *p, size_t old, size_t n); /* a lua_Alloc */

#endif
