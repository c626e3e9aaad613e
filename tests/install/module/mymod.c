/* A module of Lua in C that works on accel's tensors: module.sh compiles it by pkg-config accel-lua and by CMake's accel::lua, and
 * requires it in accel-run, in an embedding program and in a stock interpreter. */
#include <lua.h>
#include <lauxlib.h>

#include <accel/accel.h>
#include <accel/lua.h>

static int twice(lua_State *L) {
  ac_err e;
  ac_tensor *t = ac_lua_check(L, 1), *r = NULL;
  const ac_scalar one = {.kind = AC_SCALAR_INT, .i = 1};
  if (ac_add(ac_lua_ctx(L), ac_operand_tensor(t), ac_operand_tensor(t), one, &r, &e) != AC_OK) return luaL_error(L, "%s", e.msg);
  ac_lua_push(L, r);
  ac_tensor_release(r);
  return 1;
}

int luaopen_mymod(lua_State *L);
int luaopen_mymod(lua_State *L) {
  static const luaL_Reg funcs[] = {{"twice", twice}, {NULL, NULL}};
  luaL_newlib(L, funcs);
  return 1;
}
