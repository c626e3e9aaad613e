/* Lua functions that the core calls, and their errors on the way back: callback.c. */
#ifndef LAC_CALLBACK_H
#define LAC_CALLBACK_H
#include <stdatomic.h>

#include "bindings/core/raise.h"

/* Callbacks that the core has freed, possibly on another thread. lac_callbacks_drain empties it. */
typedef struct lac_hub {
  _Atomic int ref;
  _Atomic bool closed;
  struct lac_callback *_Atomic dead;
} lac_hub;

typedef struct lac_callback {
  struct lac_callback *next;
  lac_hub *hub;
  lac_state *state;
  int ref;     /* registry: the function, or a table */
  void *extra; /* malloc'ed, freed with the callback */
} lac_callback;
/* Anchors the value at idx. Raises only before anything is owned. */
lac_callback *lac_callback_new(lua_State *L, lac_state *S, int idx);
void lac_callback_free(void *callback); /* any thread */
void lac_callbacks_open(lua_State *L, lac_state *S);
void lac_callbacks_drain(lua_State *L, lac_state *S);
/* Runs body(arg as a light userdata) protected on the thread whose call led here. Its error is kept
 * for lac_raise. Nothing else may touch Lua between the core and a callback, since anything may
 * raise. */
ac_status lac_protect(lac_state *S, lua_CFunction body, void *arg, ac_err *e);

#endif
