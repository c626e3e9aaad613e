/* The C state of a Lua state (state.c), and how files of the bindings add themselves to it.
 *
 * Every C function of the bindings is a closure with upvalue 1 = the tensor metatable and upvalue 2
 * = the lac_state (a full userdata, so that whoever can call still has it). Registry keys are
 * addresses of statics. A state has a part for each owner, which the owner's header describes:
 * other files ask its functions. */
#ifndef LAC_STATE_H
#define LAC_STATE_H
#include <lauxlib.h>
#include <lua.h>

#include "accel/op.h"

typedef struct lac_state lac_state;
typedef void lac_closer(lua_State *L, lac_state *S);
enum { LAC_CLOSERS = 8 };

struct lac_state {
  ac_ctx *ctx;       /* NULL once the Lua state is being closed */
  lua_State *main;   /* for callbacks when no call of ours is in flight */
  lua_State *now;    /* the thread whose call may lead to callbacks */
  lua_State *driven; /* a coroutine of the host that accel.step yields from. NULL: none */
  bool at_step;      /* it did */
  void *host;        /* the ac_host that owns us, NULL under another interpreter */
  /* replaces the path at an index of the stack, or raises (host_rights.c). NULL: paths are used as
   * they are */
  void (*map_path)(lua_State *L, lac_state *S, int idx);
  /* "@/usr/share/lua/5.4/accel/": frames below it are ours, errors point at the caller's */
  char lib_dir[256];
  struct lac_boxes *boxes;         /* core/box.h */
  struct lac_errors *errors;       /* core/raise.h */
  struct lac_hub *hub;             /* core/callback.h */
  struct lac_gc *gc;               /* core/gc.h */
  struct lac_interrupt *interrupt; /* interrupt.h */
  struct lac_ranks *ranks;         /* dist.h */
  struct lac_profiling *profiling; /* profile.h */
  struct lac_offload *offload;     /* lac_offload.c. NULL before the first store */
  struct lac_attach *attach;       /* attach.h */
  struct lac_look *look;           /* lac_look.c */
  lac_closer *closer[LAC_CLOSERS]; /* see lac_at_close */
  int n_closers;
};

#define LAC_META lua_upvalueindex(1)
#define LAC_STATE lua_upvalueindex(2)

/* The state of the running function. Raises when the Lua state is being closed. */
lac_state *lac_get(lua_State *L);
/* The same for code that does not run in one of our functions. NULL before accel was opened. */
lac_state *lac_state_of(lua_State *L);
/* Registers functions with the two upvalues into the table on top. */
void lac_setfuncs(lua_State *L, lac_state *S, const luaL_Reg *funcs);
/* Makes the metatable of a userdata, for luaL_setmetatable: metamethods, and methods in __index.
 * getmetatable returns its name. */
void lac_new_class(lua_State *L, lac_state *S, const char *name, const luaL_Reg *metas,
                   const luaL_Reg *methods);
/* Pushes a C closure with the two upvalues. */
void lac_pushfunction(lua_State *L, lac_state *S, lua_CFunction f);
void lac_push_meta(lua_State *L); /* of tensors */
/* Pushes both upvalues: metatable, state. */
void lac_push_upvalues(lua_State *L);
/* Makes the state of a Lua state, still without a context, and pushes it. It frees the context that
 * is put in. */
lac_state *lac_state_new(lua_State *L);
/* Defines the opener of a file: LAC_OPEN("accel.console", channels) { ... } adds functions to the
 * table of that module, on top of the stack. "accel" is the table that scripts require, when all
 * ops are there already. "accel.x" is its field x. The library's own files require names that end
 * in .core. The build collects the openers (openers.cmake), so that no list names files. Openers of
 * one module run in no fixed order. */
#define LAC_OPEN(module, part)                      \
  void lac_open_##part(lua_State *L, lac_state *S); \
  void lac_open_##part(lua_State *L, lac_state *S)
typedef struct lac_opener {
  const char *module;
  void (*open)(lua_State *L, lac_state *S);
} lac_opener;
extern const lac_opener lac_openers[];
extern const int lac_n_openers;
/* Cleanup at the end of the state, the last one first: an owner's part is released while the
 * context still exists. */
void lac_at_close(lac_state *S, lac_closer *close);
/* Registry field that leads luaopen_accel_core to the ac_ctx_options of a host (light userdata). */
#define LAC_OPTIONS "accel.ctx_options"
/* Zeroed memory for an owner's part: it lives as long as the Lua state, past all finalizers. */
void *lac_state_part(lua_State *L, size_t bytes);
/* The thread on which callbacks run. */
static inline lua_State *lac_thread(const lac_state *S) {
  return S->now != NULL ? S->now : S->main;
}
/* Around core functions that may call back: returns the previous S->now. */
static inline lua_State *lac_enter(lua_State *L, lac_state *S) {
  lua_State *was = S->now;
  S->now = L;
  return was;
}
static inline void lac_leave(lac_state *S, lua_State *was) { S->now = was; }

#endif
