/* Modes that last until the end of a block: `local _ <close> = accel.no_grad()`, or for one
 * function: accel.no_grad(f, ...). A guard restores once: by __close, by :close(), or - with a
 * warning - when it was forgotten and is collected. */
#include "bindings/core/guard.h"
#include "bindings/core/lac.h"

#define GUARD "accel.guard"

static void restore(lua_State *L, lac_guard *g) {
  if (g->done) return;
  g->done = true;
  g->restore(L, g->state, g);
}

static lac_guard *check_guard(lua_State *L) {
  lac_state *S = lua_touserdata(L, LAC_STATE);
  lac_guard *g = luaL_testudata(L, 1, GUARD);
  if (g == NULL)
    lac_argerror(L, S, AC_INVALID, "close", 1, "guard", "expected guard, got %s",
                 luaL_typename(L, 1));
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
  luaL_setmetatable(L, GUARD);
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

LAC_OPEN("accel", guard) {
  static const luaL_Reg methods[] = {{"close", guard_close}, {NULL, NULL}};
  static const luaL_Reg metas[] = {
      {"__gc", guard_gc}, {"__close", guard_close}, {"__tostring", guard_tostring}, {NULL, NULL}};
  lac_new_class(L, S, GUARD, metas, methods);
}
