/* accel.scope(): tensors born in it and not kept are released when it ends. For loops over big
 * temporaries, that should not wait for the collector. Boxes born in a scope are in a table with
 * weak keys.
 *   local s <close> = accel.scope()        or        local y = accel.scope(function(s) ... return y
 *                                          end) */
#include <stdlib.h>

#include "bindings/core/guard.h"
#include "bindings/core/lac.h"

#define SCOPE "accel.scope"
#define UNSCOPED "accel.unscoped"
static const char key_weak;

/* Lua's handle of a scope. NULL: closed. */
typedef struct handle {
  lac_scope *s;
} handle;

static handle *check_scope(lua_State *L, lac_state *S) {
  handle *h = luaL_testudata(L, 1, SCOPE);
  if (h == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, 1, "scope", "expected scope, got %s", luaL_typename(L, 1));
  return h;
}

/* Opens a scope, and pushes its handle, of class `name`. */
static handle *push_scope(lua_State *L, lac_state *S, const char *name) {
  handle *h = lua_newuserdatauv(L, sizeof *h, 0);
  h->s = NULL;
  luaL_setmetatable(L, name);
  lua_newtable(L);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &key_weak);
  lua_setmetatable(L, -2);
  lac_scope *s = malloc(sizeof *s);
  if (s == NULL) lac_error(L, S, AC_OOM, "no memory for a scope");
  s->outer = NULL;
  h->s = s; /* from here on the handle's finalizer frees it */
  lua_rawsetp(L, LUA_REGISTRYINDEX, s);
  s->outer = S->boxes->scope;
  S->boxes->scope = s;
  return h;
}

/* Ends the scope and pushes its boxes. */
static void end_scope(lua_State *L, lac_state *S, handle *h) {
  lac_scope *s = h->s, **p = &S->boxes->scope;
  while (*p != NULL && *p != s) p = &(*p)->outer;
  if (*p != NULL) *p = s->outer;
  h->s = NULL;
  lua_rawgetp(L, LUA_REGISTRYINDEX, s);
  lua_pushnil(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, s);
  free(s);
}

/* Forgotten without <close>: its tensors simply live on. */
static int scope_gc(lua_State *L) {
  handle *h = lua_touserdata(L, 1);
  if (h->s != NULL) end_scope(L, lua_touserdata(L, LAC_STATE), h);
  return 0;
}

static int scope_close(lua_State *L) {
  lac_state *S = lua_touserdata(L, LAC_STATE);
  handle *h = check_scope(L, S);
  if (h->s == NULL) return 0;
  uint32_t site = lac_site_here(L, S);
  end_scope(L, S, h);
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
    lac_box *b = lac_box_test(L, -2);
    if (b->t != NULL) lac_box_release(L, S, b, site);
  }
  return 0;
}

static int scope_tostring(lua_State *L) {
  const handle *h = check_scope(L, lua_touserdata(L, LAC_STATE));
  lua_pushstring(L, h->s != NULL ? "scope, open; :close() ends it" : "scope, closed");
  return 1;
}

/* s:keep(t, ...) -> t, ...: they belong to the enclosing scope from now on. Lists of tensors are
 * kept with their contents. */
static void keep(lua_State *L, lac_state *S, lac_scope *s, int idx, int depth) {
  lac_box *b = lac_box_test(L, idx);
  if (b != NULL) {
    luaL_checkstack(L, 6, "keep");
    lua_pushvalue(L, idx);
    lua_rawgetp(L, LUA_REGISTRYINDEX, s);
    lua_pushvalue(L, -2);
    if (lua_rawget(L, -2) == LUA_TBOOLEAN) {
      lua_pushvalue(L, -3);
      lua_pushnil(L);
      lua_rawset(L, -4);
      lua_pop(L, 2);
      if (s->outer != NULL) lac_scope_add(L, s->outer);
      lua_pop(L, 1);
    } else {
      lua_pop(L, 3);
    }
  } else if (lua_istable(L, idx) && depth < 8) {
    luaL_checkstack(L, 6, "keep");
    idx = lua_absindex(L, idx);
    for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1)) keep(L, S, s, -1, depth + 1);
  } else if (depth == 0 && !lua_isnil(L, idx)) {
    lac_argerror(L, S, AC_INVALID, "keep", idx, "t", "expected tensor or table of tensors, got %s",
                 luaL_typename(L, idx));
  }
}

static int scope_keep(lua_State *L) {
  lac_state *S = lua_touserdata(L, LAC_STATE);
  const handle *h = check_scope(L, S);
  for (int i = 2; i <= lua_gettop(L) && h->s != NULL; i++) keep(L, S, h->s, i, 0);
  return lua_gettop(L) - 1;
}

/* accel.scope() -> scope for `local s <close> =`. accel.scope(f, ...) runs f(s, ...) and returns
 * its results, kept. */
static int scope_keep_results(lua_State *L, int status, lua_KContext base) {
  lac_state *S = lua_touserdata(L, LAC_STATE);
  const handle *h = lua_touserdata(L, (int)base);
  for (int i = (int)base + 1; i <= lua_gettop(L) && h->s != NULL; i++)
    if (lac_box_test(L, i) != NULL || lua_istable(L, i)) keep(L, S, h->s, i, 0);
  return lua_gettop(L) - (int)base;
}

static int scope_new(lua_State *L) {
  lac_state *S = lac_get(L);
  int n = lua_gettop(L);
  if (n > 0) lac_check_function(L, S, 1, "f");
  push_scope(L, S, SCOPE);
  if (n == 0) return 1;
  lua_insert(L, 1);
  lua_toclose(L, 1);
  lua_pushvalue(L, 1);
  lua_insert(L, 3); /* scope, f, scope, args */
  lua_callk(L, n, LUA_MULTRET, 1, scope_keep_results);
  return scope_keep_results(L, LUA_OK, 1);
}

/* accel.unscoped(f, ...): runs f(...) as if no scope were open and returns its results. For
 * libraries whose first use makes objects that must outlive the script's scope, such as an
 * optimizer's state. It is a scope of its own that forgets the tensors born in it, also when f
 * fails, so that f may close the script's scopes. */
static int unscoped(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_check_function(L, S, 1, "f");
  if (S->boxes->scope == NULL) lua_pushnil(L); /* closing that does nothing */
  else push_scope(L, S, UNSCOPED);
  return lac_guard_finish(L, 1);
}

static int live(lua_State *L) {
  lua_pushinteger(L, lac_get(L)->boxes->n_live);
  return 1;
}

LAC_OPEN("accel", scope) {
  static const luaL_Reg methods[] = {{"keep", scope_keep}, {"close", scope_close}, {NULL, NULL}};
  static const luaL_Reg funcs[] = {
      {"scope", scope_new}, {"unscoped", unscoped}, {"live", live}, {NULL, NULL}};
  static const luaL_Reg metas[] = {
      {"__gc", scope_gc}, {"__close", scope_close}, {"__tostring", scope_tostring}, {NULL, NULL}};
  static const luaL_Reg unscoped_metas[] = {
      {"__gc", scope_gc}, {"__close", scope_gc}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, SCOPE, metas, methods);
  lac_new_class(L, S, UNSCOPED, unscoped_metas, &methods[2]); /* no methods */
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "k");
  lua_setfield(L, -2, "__mode");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &key_weak);
}
