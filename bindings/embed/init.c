/* luaopen_accel_core: the native module, put together from the openers of its files. luaopen_accel:
 * the whole library. */
#include <dlfcn.h>
#include <limits.h>
#include <string.h>

#include "accel/autograd.h"
#include "accel/lua.h"
#include "bindings/core/callback.h"
#include "bindings/core/chunk.h"
#include "bindings/core/lac.h"
#include "bindings/core/op.h"
#include "bindings/comm/dist.h"

#ifndef ACCEL_VERSION
#define ACCEL_VERSION "unknown"
#endif

/* Runs the openers of a module on the table on top. */
static void open_module(lua_State *L, lac_state *S, const char *module) {
  for (int i = 0; i < lac_n_openers; i++)
    if (strcmp(lac_openers[i].module, module) == 0) lac_openers[i].open(L, S);
}

/* require of a module that the library's own files use. Upvalue 3: its name */
static int require_module(lua_State *L) {
  lac_state *S = lac_get(L);
  lua_newtable(L);
  open_module(L, S, lua_tostring(L, lua_upvalueindex(3)));
  return 1;
}

static bool seen_before(int i) {
  for (int k = 0; k < i; k++)
    if (strcmp(lac_openers[k].module, lac_openers[i].module) == 0) return true;
  return false;
}

/* Pushes the table accel. Ops come first: functions that the files define by hand may replace
 * them. */
static void push_accel(lua_State *L, lac_state *S) {
  static const char accel[] = "accel", core[] = ".core";
  lua_createtable(L, 0, 512);
  lua_newtable(L);
  lac_open_ops(L, S, -2, -1);
  lua_setfield(L, -2, "Tensor");
  open_module(L, S, accel);
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
  for (int i = 0; i < lac_n_openers; i++) {
    const char *name = lac_openers[i].module;
    const size_t n = strlen(name), k = sizeof core - 1;
    if (strcmp(name, accel) == 0 || seen_before(i)) continue;
    if (strcmp(name + n - k, core) == 0) {
      lac_push_upvalues(L);
      lua_pushstring(L, name);
      lua_pushcclosure(L, require_module, 3);
      lua_setfield(L, -2, name);
    } else {
      lua_newtable(L);
      open_module(L, S, name);
      lua_setfield(L, -3, name + sizeof accel); /* the part after "accel." */
    }
  }
  lua_pop(L, 1);
}

/* Under a stock interpreter the caller is accel/init.lua: its folder holds the library's own
 * frames. */
static void find_lib_dir(lua_State *L, lac_state *S) {
  static const char tail[] = "/accel/init.lua";
  lua_Debug ar;
  for (int level = 1; lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "S", &ar);
    size_t n = strlen(ar.source), k = sizeof tail - 1;
    if (ar.source[0] == '@' && n > k && strcmp(ar.source + n - k, tail) == 0 &&
        n - 8 < sizeof S->lib_dir) {
      memcpy(S->lib_dir, ar.source, n - 8); /* up to "accel/" */
      S->lib_dir[n - 8] = 0;
      return;
    }
  }
}

/* A stock interpreter started by torchrun, mpirun or srun is a rank from here on. Hosts join by
 * themselves. */
static void join(lua_State *L, lac_state *S) {
  ac_err e;
  const char *script = NULL;
  const int top = lua_gettop(L);
  if (lua_getglobal(L, "arg") == LUA_TTABLE && lua_rawgeti(L, -1, 0) == LUA_TSTRING)
    script = lua_tostring(L, -1);
  if (lac_world_join(S, script, &e) != AC_OK) lac_raise(L, S, &e);
  lua_settop(L, top);
}

/* A stock interpreter loads modules without showing their symbols to others. Modules in C that work
 * on accel's tensors (pkg-config accel-lua) then find ours. Without effect in a program that links
 * libaccel, whose symbols are visible. */
static void show_symbols(void) {
  Dl_info here;
  if (dladdr((void *)(uintptr_t)&luaopen_accel_core, &here) != 0 && here.dli_fname != NULL)
    (void)dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
}

int luaopen_accel_core(lua_State *L) {
  if (lua_getfield(L, LUA_REGISTRYINDEX, "accel.core") == LUA_TTABLE) return 1;
  ac_err e;
  luaL_checkstack(L, 20, "accel");
  lac_state *S = lac_state_new(L);
  lac_raise_open(L, S);
  lac_callbacks_open(L, S);
  lua_getfield(L, LUA_REGISTRYINDEX, LAC_OPTIONS);
  const ac_ctx_options *o = lua_touserdata(L, -1);
  lua_pop(L, 1);
  ac_ctx_options stock = AC_CTX_OPTIONS_INIT;
  stock.device = "auto";
  stock.local_rank = ac_env_local_rank();
  if (ac_ctx_new(o != NULL ? o : &stock, &S->ctx, &e) != AC_OK) return lac_raise(L, S, &e);
  ac_ctx_set_index_base(S->ctx, 1);
  ac_autograd_open(S->ctx);
  find_lib_dir(L, S);
  /* closed in reverse: tensors of scripts are gone before the memory that ranks share, callbacks of
   * either last */
  lac_world_init(L, S);
  lac_box_open(L, S);
  lac_sites_open(L);
  lac_gc_init(L, S);
  push_accel(L, S);
  lua_pushliteral(L, ACCEL_VERSION);
  lua_setfield(L, -2, "_VERSION");
  if (o == NULL) {
    show_symbols();
    join(L, S);
  }
  lua_pushvalue(L, -1);
  lua_setfield(L, LUA_REGISTRYINDEX, "accel.core");
  return 1;
}

/* For programs that put it into package.preload: finds accel/init.lua by package.path, otherwise
 * next to the library. */
int luaopen_accel(lua_State *L) {
  char dir[PATH_MAX];
  luaL_requiref(L, "accel.core", luaopen_accel_core, 0);
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "searchpath");
  lua_pushliteral(L, "accel");
  lua_getfield(L, -3, "path");
  lua_call(L, 2, 1);
  if (lua_isnil(L, -1)) {
    if (!lac_lua_dir(dir, sizeof dir))
      return luaL_error(L, "accel/init.lua is not on package.path");
    lua_getfield(L, -2, "path");
    lua_pushfstring(L, "%s/?.lua;%s/?/init.lua;%s", dir, dir, lua_tostring(L, -1));
    lua_setfield(L, -4, "path");
    lua_pushfstring(L, "%s/accel/init.lua", dir);
  }
  if (luaL_loadfilex(L, lua_tostring(L, -1), "t") != LUA_OK) return lua_error(L);
  lua_pushliteral(L, "accel");
  lua_call(L, 1, 1);
  return 1;
}

/* ---- accel/lua.h ---- */

ac_ctx *ac_lua_ctx(lua_State *L) {
  const lac_state *S = lac_state_of(L);
  return S != NULL ? S->ctx : NULL;
}

void ac_lua_push(lua_State *L, ac_tensor *t) {
  lac_state *S = lac_state_of(L);
  if (S == NULL) luaL_error(L, "accel is not open in this Lua state");
  else lac_push_tensor(L, S, t);
}

ac_tensor *ac_lua_test(lua_State *L, int idx) {
  const lac_state *S = lac_state_of(L);
  const lac_box *b = S != NULL && S->ctx != NULL ? lac_box_test(L, idx) : NULL;
  return b != NULL ? b->t : NULL;
}

ac_tensor *ac_lua_check(lua_State *L, int idx) {
  lac_state *S = lac_state_of(L);
  if (S == NULL) luaL_error(L, "accel is not open in this Lua state");
  return lac_check_tensor(L, S, idx, "tensor");
}
