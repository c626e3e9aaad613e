/* Modes that last until the end of a block: `local _ <close> = accel.no_grad()`, or for one function:
 * accel.no_grad(f, ...). A guard restores once: by __close, by :close(), or - with a warning - when it was
 * forgotten and is collected. */
#include "core/lac.h"

static const char key_guard;

static void restore(lua_State *L, lac_guard *g) {
  if (g->done) return;
  g->done = true;
  g->restore(L, g->state, g);
}

static lac_guard *check_guard(lua_State *L) {
  lac_state *S = lua_touserdata(L, LAC_STATE);
  lac_guard *g = lua_touserdata(L, 1);
  bool ok = g != NULL && lua_getmetatable(L, 1);
  if (ok) {
    lua_rawgetp(L, LUA_REGISTRYINDEX, &key_guard);
    ok = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
  }
  if (!ok) lac_argerror(L, S, AC_INVALID, "close", 1, "guard", "expected guard, got %s", luaL_typename(L, 1));
  return g;
}

static int guard_close(lua_State *L) {
  restore(L, check_guard(L));
  return 0;
}

static int guard_gc(lua_State *L) {
  lac_guard *g = lua_touserdata(L, 1);
  if (g->done || g->state->ctx == NULL) return 0;
  lua_warning(L, "accel.", 1);
  lua_warning(L, g->name, 1);
  lua_warning(L, "() was neither closed nor given a function; write: local _ <close> = accel.", 1);
  lua_warning(L, g->name, 1);
  lua_warning(L, "()", 0);
  restore(L, g);
  return 0;
}

static int guard_tostring(lua_State *L) {
  const lac_guard *g = check_guard(L);
  lua_pushfstring(L, g->done ? "%s, closed" : "%s, open; :close() ends it", g->name);
  return 1;
}

lac_guard *lac_guard_push(lua_State *L, lac_state *S, const char *name,
                          void (*fn)(lua_State *, lac_state *, lac_guard *)) {
  lac_guard *g = lua_newuserdatauv(L, sizeof *g, 0);
  *g = (lac_guard){.state = S, .restore = fn, .name = name, .done = true};
  lua_rawgetp(L, LUA_REGISTRYINDEX, &key_guard);
  lua_setmetatable(L, -2);
  return g;
}

static int results(lua_State *L, int status, lua_KContext fn) { return lua_gettop(L) - (int)fn; }

/* Stack: ..., f at fn, arguments, guard on top. */
int lac_guard_finish(lua_State *L, int fn) {
  int top = lua_gettop(L);
  if (fn >= top || lua_isnoneornil(L, fn)) return 1;
  lua_insert(L, fn); /* guard, f, arguments */
  lua_toclose(L, fn);
  lua_callk(L, top - fn - 1, LUA_MULTRET, fn, results);
  return results(L, LUA_OK, fn);
}

void lac_guard_open(lua_State *L, lac_state *S) {
  static const luaL_Reg methods[] = {{"close", guard_close}, {NULL, NULL}};
  lua_newtable(L);
  lua_pushliteral(L, "accel.guard");
  lua_setfield(L, -2, "__name");
  lua_pushliteral(L, "accel.guard");
  lua_setfield(L, -2, "__metatable");
  lac_pushfunction(L, S, guard_close);
  lua_setfield(L, -2, "__close");
  lac_pushfunction(L, S, guard_gc);
  lua_setfield(L, -2, "__gc");
  lac_pushfunction(L, S, guard_tostring);
  lua_setfield(L, -2, "__tostring");
  lua_newtable(L);
  lac_setfuncs(L, S, methods);
  lua_setfield(L, -2, "__index");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &key_guard);
}
