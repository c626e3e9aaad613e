/* The Lua files of the host, embedded in the library at build time (lua/CMakeLists.txt). */
#include <string.h>

#include "bindings/core/chunk.h"
#include "bindings/core/lac.h"

extern const struct aci_lua_chunk {
  const char *name; /* "lua/strict.lua" */
  const char *text;
  size_t len;
} aci_lua_chunks[];
extern const int aci_n_lua_chunks;

static const char key_env; /* registry: the environment of lua/rights.lua, if there is one */

void lac_chunk_env(lua_State *L) { lua_rawsetp(L, LUA_REGISTRYINDEX, &key_env); }

/* (chunk) -> chunk, its first argument: in its environment, where the table accel has all fields. */
static void give_env(lua_State *L) {
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &key_env) == LUA_TTABLE) {
    lua_pushliteral(L, "accel");
    lua_rawget(L, -2);
    lua_insert(L, -2);
    lua_setupvalue(L, -3, 1);
  } else {
    lua_pop(L, 1);
    lua_getfield(L, LUA_REGISTRYINDEX, "accel.core");
  }
}

void lac_chunk(lua_State *L, lac_state *S, const char *name) {
  luaL_checkstack(L, 8, "chunk");
  if (luaL_getsubtable(L, LUA_REGISTRYINDEX, "accel.chunks") &&
      lua_getfield(L, -1, name) != LUA_TNIL) {
    lua_remove(L, -2);
    return;
  }
  lua_settop(L, lua_gettop(L) - (lua_isnil(L, -1) ? 1 : 0));
  size_t n = strlen(name);
  for (int i = 0; i < aci_n_lua_chunks; i++) {
    const struct aci_lua_chunk *c = &aci_lua_chunks[i];
    size_t len = strlen(c->name);
    if (len != n + 8 || strncmp(c->name, "lua/", 4) != 0 || strncmp(c->name + 4, name, n) != 0)
      continue;
    lua_pushfstring(L, "=%s", c->name);
    int st = luaL_loadbufferx(L, c->text, c->len, lua_tostring(L, -1), "t");
    lua_remove(L, -2);
    if (st != LUA_OK) lua_error(L);
    give_env(L);
    lua_pushstring(L, S->lib_dir);
    lua_call(L, 2, 1);
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, name);
    lua_remove(L, -2);
    return;
  }
  lac_error(L, S, AC_INTERNAL, "no embedded file lua/%s.lua", name);
}

/* Stands in for the function that lua/<upvalue 3>.lua returns until it is asked for the first
 * time. */
static int lazy(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_chunk(L, S, lua_tostring(L, lua_upvalueindex(3)));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

void lac_push_lazy(lua_State *L, const char *name) {
  lac_push_upvalues(L);
  lua_pushstring(L, name);
  lua_pushcclosure(L, lazy, 3);
}

/* accel.host_chunk(name): the result of lua/<name>.lua. For the host's own files. */
static int chunk(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_chunk(L, S, lac_check_string(L, S, 1, "name", NULL));
  return 1;
}

LAC_OPEN("accel", chunks) {
  static const luaL_Reg funcs[] = {{"host_chunk", chunk}, {NULL, NULL}};
  static const char *const names[] = {"pairs", "inspect", "traceback", "repl", "breakpoint"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    lac_push_lazy(L, names[i]);
    lua_setfield(L, -2, names[i]);
  }
  lua_createtable(L, 0, 1); /* accel.pdb */
  lac_push_lazy(L, "set_trace");
  lua_setfield(L, -2, "set_trace");
  lua_setfield(L, -2, "pdb");
  lac_setfuncs(L, S, funcs);
}
