/* Plain Lua data as bytes for another process, written and read without memory of the C library:
 * the sandbox (lac_sandbox.c) runs while no system call is allowed. Nil, booleans, numbers,
 * strings, and tables of these with keys of strings and numbers. Metatables are neither called nor
 * kept. */
#ifndef LAC_PLAIN_H
#define LAC_PLAIN_H
#include <lua.h>
#include <stdbool.h>
#include <stddef.h>

enum { LAC_PLAIN_DEPTH = 32, LAC_PLAIN_NODES = 100000 };

typedef struct lac_plain {
  char *s; /* room for `cap` bytes, its owner's */
  size_t len, cap;
  int nodes;
  const char *why; /* the first fault. NULL: none */
} lac_plain;

/* Appends the value at idx. False: p->why has the fault. Raises nothing but Lua's own lack of
 * stack. */
bool lac_plain_write(lua_State *L, int idx, lac_plain *p);
/* Pushes one value from the bytes at *s (to end, which is moved on). False, with an undefined value
 * pushed, if they are invalid. */
bool lac_plain_read(lua_State *L, const char **s, const char *end, int depth);

#endif
