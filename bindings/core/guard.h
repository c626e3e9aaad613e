/* Modes that last until __close, or for the run of a function: guard.c. */
#ifndef LAC_GUARD_H
#define LAC_GUARD_H
#include "accel/precision.h"
#include "bindings/core/state.h"

typedef struct lac_guard {
  lac_state *state;
  void (*restore)(lua_State *L, lac_state *S, struct lac_guard *g);
  const char *name; /* "no_grad" */
  bool done;
  union {
    bool b;
    ac_autocast_state cast;
    ac_device *device;
  } was;
} lac_guard;
/* Pushes a guard whose restore runs once. */
lac_guard *lac_guard_push(lua_State *L, lac_state *S, const char *name,
                          void (*restore)(lua_State *, lac_state *, lac_guard *));
/* The guard on top, or whatever __close ends, as the result. With a function at fn, runs it with
 * the arguments after it and returns its results. */
int lac_guard_finish(lua_State *L, int fn);

#endif
