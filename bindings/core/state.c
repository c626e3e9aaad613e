/* The C state of a Lua state: made by luaopen_accel_core or by ac_host_open, found through the
 * registry, freed last when the Lua state closes (it was marked for finalization first, so boxes go
 * before it). */
#include <string.h>

#include "bindings/core/lac.h"

static const char key_state, key_meta;

lac_state *lac_state_of(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &key_state);
  lac_state *S = lua_touserdata(L, -1);
  lua_pop(L, 1);
  return S;
}

lac_state *lac_get(lua_State *L) {
  lac_state *S = lua_touserdata(L, LAC_STATE);
  if (S == NULL || S->ctx == NULL) luaL_error(L, "accel is closed");
  return S;
}

void lac_push_meta(lua_State *L) { lua_rawgetp(L, LUA_REGISTRYINDEX, &key_meta); }

void lac_push_upvalues(lua_State *L) {
  lac_push_meta(L);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &key_state);
}

void lac_pushfunction(lua_State *L, lac_state *S, lua_CFunction f) {
  lac_push_upvalues(L);
  lua_pushcclosure(L, f, 2);
}

void lac_setfuncs(lua_State *L, lac_state *S, const luaL_Reg *funcs) {
  for (; funcs->name != NULL; funcs++) {
    lac_pushfunction(L, S, funcs->func);
    lua_setfield(L, -2, funcs->name);
  }
}

void lac_new_class(lua_State *L, lac_state *S, const char *name, const luaL_Reg *metas,
                   const luaL_Reg *methods) {
  luaL_newmetatable(L, name);
  lac_setfuncs(L, S, metas);
  lua_newtable(L);
  lac_setfuncs(L, S, methods);
  lua_setfield(L, -2, "__index");
  lua_pushstring(L, name);
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 1);
}

void lac_at_close(lac_state *S, lac_closer *close) {
  if (AC_HOLDS(S->n_closers < LAC_CLOSERS)) S->closer[S->n_closers++] = close;
}

static int state_gc(lua_State *L) {
  lac_state *S = lua_touserdata(L, 1);
  ac_ctx *c = S->ctx;
  while (S->n_closers > 0) S->closer[--S->n_closers](L, S);
  S->ctx = NULL;
  ac_ctx_free(c);
  return 0;
}

void *lac_state_part(lua_State *L, size_t bytes) {
  void *p = lua_newuserdatauv(L, bytes, 0);
  memset(p, 0, bytes);
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &key_state) != LUA_TUSERDATA)
    luaL_error(L, "accel is closed");
  lua_getiuservalue(L, -1, 1);
  lua_pushvalue(L, -3);
  lua_rawsetp(L, -2, p);
  lua_pop(L, 3);
  return p;
}

lac_state *lac_state_new(lua_State *L) {
  lac_state *S = lua_newuserdatauv(L, sizeof *S, 1);
  *S = (lac_state){0};
  lua_newtable(L); /* its parts, which live as long */
  lua_setiuservalue(L, -2, 1);
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
  S->main = lua_tothread(L, -1);
  lua_pop(L, 1);
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, state_gc);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &key_state);
  lua_createtable(L, 0, 24);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &key_meta);
  return S;
}
