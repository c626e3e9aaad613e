/* Rights of scripts that need C (accel/host.h): finalizers, the paths of files, and the functions
 * of debug that reach into the library. The others are taken by lua/rights.lua. */
#include <lauxlib.h>
#include <limits.h>
#include <lualib.h>
#include <string.h>

#include "host_impl.h"

/* ---- paths ---- */

/* Replaces the path at idx by the one that the program wants. Raises if it refuses. */
static void map_path(lua_State *L, lac_state *S, int idx) {
  ac_host *h = S->host;
  size_t n;
  const char *path = lua_tolstring(L, idx, &n), *other = NULL;
  if (h->o.rights & AC_HOST_NO_IO)
    lac_error(L, S, AC_UNSUPPORTED,
              "%s: this host does not give scripts the right to files (AC_HOST_NO_IO)", path);
  if (strlen(path) == n) other = h->o.path(h->o.user, h, path);
  if (other == NULL)
    lac_error(L, S, AC_UNSUPPORTED, "%s: the program refuses this path to scripts", path);
  lua_pushstring(L, other);
  lua_replace(L, idx);
}

/* path(name): for lua/rights.lua. */
static int path_of(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_check_string(L, S, 1, "path", NULL);
  lua_settop(L, 1);
  map_path(L, S, 1);
  return 1;
}

/* ---- finalizers and debug ---- */

/* Lua's own function, upvalue 1, in the place of ours: levels and messages are the same. */
static int original(lua_State *L) { return lua_tocfunction(L, lua_upvalueindex(1))(L); }

/* Whether the function at idx is the library's or Lua's. */
static bool is_foreign(lua_State *L, int idx) {
  lua_Debug ar;
  if (lua_iscfunction(L, idx)) return true;
  lua_pushvalue(L, idx);
  return lua_getinfo(L, ">S", &ar) && lac_site_own(lac_state_of(L), ar.source);
}

/* Whether the metatable at idx has a finalizer that is not the library's own. One in C may run a
 * function of the script. */
static bool has_finalizer(lua_State *L, int idx) {
  if (!lua_istable(L, idx)) return false;
  lua_pushliteral(L, "__gc");
  const int type = lua_rawget(L, idx);
  const bool own = type == LUA_TFUNCTION && !lua_iscfunction(L, -1) && is_foreign(L, lua_gettop(L));
  lua_pop(L, 1);
  return type != LUA_TNIL && !own;
}

static int set_metatable(lua_State *L) {
  if (has_finalizer(L, 2))
    return luaL_error(
        L,
        "setmetatable: this host refuses finalizers (__gc) of scripts; use a variable with <close>");
  return original(L);
}

static int refused(lua_State *L) {
  return luaL_error(L, "debug: this host does not give scripts the right to this function");
}

/* getupvalue, setupvalue, upvalueid, upvaluejoin */
static int upvalues(lua_State *L) {
  for (int i = 1; i <= 3; i += 2)
    if (lua_isfunction(L, i) && is_foreign(L, i)) return refused(L);
  return original(L);
}

/* getinfo: without the function if that is not the script's. */
static int get_info(lua_State *L) {
  const int n = original(L);
  if (n == 1 && lua_istable(L, -1)) {
    if (lua_getfield(L, -1, "func") == LUA_TFUNCTION && is_foreign(L, lua_gettop(L))) {
      lua_pushnil(L);
      lua_setfield(L, -3, "func");
    }
    lua_pop(L, 1);
  }
  return n;
}

/* getlocal, setlocal: of functions and levels of the script alone. */
static int locals(lua_State *L) {
  lua_State *of = lua_isthread(L, 1) ? lua_tothread(L, 1) : L;
  const int idx = lua_isthread(L, 1) ? 2 : 1;
  lua_Debug ar;
  if (lua_isfunction(L, idx)) return is_foreign(L, idx) ? refused(L) : original(L);
  const lua_Integer level = luaL_checkinteger(L, idx);
  if (level < 0 || level > INT_MAX || !lua_getstack(of, (int)level, &ar)) return original(L);
  lua_getinfo(of, "S", &ar);
  if (ar.what[0] == 'C' || lac_site_own(lac_state_of(L), ar.source)) return refused(L);
  return original(L);
}

/* debug.getmetatable: not of userdata, whose finalizers are in there. */
static int get_metatable(lua_State *L) { return lua_isuserdata(L, 1) ? refused(L) : original(L); }

/* Of the library `name` on top. f NULL: the function is refused. */
static void replace(lua_State *L, const char *name, lua_CFunction f) {
  lua_pushstring(L, name);
  lua_pushstring(L, name);
  if (lua_rawget(L, -3) == LUA_TFUNCTION && lua_iscfunction(L, -1)) {
    lua_pushcclosure(L, f, 1);
    lua_rawset(L, -3);
  } else {
    lua_pop(L, 2);
  }
}

void lac_rights_open(lua_State *L, ac_host *h) {
  static const char *const reach[] = {"getupvalue", "setupvalue", "upvalueid", "upvaluejoin"};
  if (!lac_host_limited(h)) return;
  const bool finalizers = !(h->o.rights & AC_HOST_NO_FINALIZERS);
  lua_pushglobaltable(L);
  if (!finalizers) replace(L, "setmetatable", set_metatable);
  lua_getglobal(L, LUA_DBLIBNAME);
  if (!finalizers) {
    replace(L, "setmetatable", set_metatable);
    replace(L, "getmetatable", get_metatable);
    if (luaL_getmetatable(L, LUA_FILEHANDLE) == LUA_TTABLE) {
      lua_pushliteral(L, LUA_FILEHANDLE);
      lua_setfield(L, -2, "__metatable");
    }
    lua_pop(L, 1);
  }
  if (!finalizers || h->o.instructions != 0) replace(L, "sethook", refused);
  replace(L, "getlocal", locals);
  replace(L, "setlocal", locals);
  for (size_t i = 0; i < sizeof reach / sizeof *reach; i++) replace(L, reach[i], upvalues);
  replace(L, "getinfo", get_info);
  lua_pushcfunction(L, refused);
  lua_setfield(L, -2, "getregistry");
  lua_pushcfunction(L, refused);
  lua_setfield(L, -2, "debug"); /* a prompt */
  lua_pop(L, 2);
}

bool lac_host_limited(const ac_host *h) {
  return h->o.rights != 0 || h->o.path != NULL || h->o.modules != NULL;
}

/* Adds the fields of rights to the options of lua/boot.lua, on top of the stack. */
void lac_rights_describe(lua_State *L, ac_host *h) {
  static const struct {
    uint32_t right;
    const char *name;
  } rights[] = {{AC_HOST_NO_IO, "io"}, {AC_HOST_NO_OS, "os"}, {AC_HOST_NO_LOAD, "load"}};
  lua_pushboolean(L, lac_host_limited(h));
  lua_setfield(L, -2, "limited");
  for (size_t i = 0; i < sizeof rights / sizeof *rights; i++) {
    lua_pushboolean(L, (h->o.rights & rights[i].right) != 0);
    lua_setfield(L, -2, rights[i].name);
  }
  if (h->o.modules != NULL) {
    lua_newtable(L);
    for (int i = 0; h->o.modules[i] != NULL; i++) {
      lua_pushstring(L, h->o.modules[i]);
      lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "modules");
  }
  if (h->o.path != NULL || (h->o.rights & AC_HOST_NO_IO)) h->S->map_path = map_path;
  if (h->o.path != NULL) {
    lac_pushfunction(L, h->S, path_of);
    lua_setfield(L, -2, "path");
  }
}
