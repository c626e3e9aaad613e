/* accel.fuse.core, the native part of accel.compile: regions in which chains of maps become one
 * pass over memory (ops/core/fuse.h).
 *
 *   enter()                    begins a region. Regions nest
 *   leave(all)                 ends it. all: computes every waiting tensor, not only those that
 *                              gradients need
 *   settle(t, ...)             the values of these tensors are in memory from now on. Skips other
 *                              values
 *   counts() -> waited, passes, written, waiting, generated */
#include "bindings/core/lac.h"
#include "ops/core/fuse.h"

#define HANDLE "accel.fuse"      /* its metatable */
#define KEPT "accel.fuse.handle" /* the one of this state, in the registry */

static aci_fuse **handle(lua_State *L, lac_state *S) {
  ac_err e;
  if (lua_getfield(L, LUA_REGISTRYINDEX, KEPT) == LUA_TNIL) {
    lua_pop(L, 1);
    aci_fuse **z = lua_newuserdatauv(L, sizeof *z, 0);
    *z = NULL;
    luaL_setmetatable(L, HANDLE);
    if (aci_fuse_open(S->ctx, z, &e) != AC_OK) lac_raise(L, S, &e);
    lua_pushvalue(L, -1);
    lua_setfield(L, LUA_REGISTRYINDEX, KEPT);
  }
  aci_fuse **z = lua_touserdata(L, -1);
  lua_pop(L, 1);
  return z;
}

static int collect(lua_State *L) {
  aci_fuse **z = lua_touserdata(L, 1);
  if (*z != NULL) aci_fuse_close(*z);
  *z = NULL;
  return 0;
}

static int enter(lua_State *L) {
  aci_fuse_enter(*handle(L, lac_get(L)));
  return 0;
}

static int leave(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  return aci_fuse_leave(*handle(L, S), lua_toboolean(L, 1), &e) == AC_OK ? 0 : lac_raise(L, S, &e);
}

static int settle(lua_State *L) {
  lac_state *S = lac_get(L);
  const int n = lua_gettop(L);
  for (int i = 1; i <= n; i++) { /* all of them in one pass */
    const lac_box *b = lac_box_test(L, i);
    if (b != NULL && b->t != NULL) aci_fuse_want(S->ctx, b->t);
  }
  ac_err e;
  return aci_fuse_compute(S->ctx, &e) == AC_OK ? 0 : lac_raise(L, S, &e);
}

static int counts(lua_State *L) {
  const aci_fuse_counts n = aci_fuse_count(*handle(L, lac_get(L)));
  lua_pushinteger(L, n.waited);
  lua_pushinteger(L, n.passes);
  lua_pushinteger(L, n.written);
  lua_pushinteger(L, n.waiting);
  lua_pushinteger(L, n.generated);
  return 5;
}

LAC_OPEN("accel.fuse.core", fuse) {
  static const luaL_Reg funcs[] = {
      {"enter", enter}, {"leave", leave}, {"settle", settle}, {"counts", counts}, {NULL, NULL}};
  if (luaL_newmetatable(L, HANDLE)) {
    lua_pushcfunction(L, collect);
    lua_setfield(L, -2, "__gc");
  }
  lua_pop(L, 1);
  lac_setfuncs(L, S, funcs);
}
