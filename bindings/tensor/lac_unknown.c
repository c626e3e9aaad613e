/* What to write in place of a field or method that tensors do not have: what stands in for
 * PyTorch's name, else the nearest name. lua/traceback.lua adds the colon that model.forward(x)
 * lacks. */
#include "bindings/core/key.h"
#include "bindings/core/op.h"
#include "bindings/tensor/unknown.h"

/* What to use in the place of a name that PyTorch's tensors have, from the training library's one
 * table of them; NULL: not in it. */
static const char *instead_of(lua_State *L, const char *key) {
  lua_getglobal(L, "require");
  lua_pushstring(L, "accel.util.absent");
  if (lua_pcall(L, 1, 1, 0) != LUA_OK || lua_getfield(L, -1, "instead_of") != LUA_TFUNCTION)
    return NULL;
  lua_pushstring(L, "Tensor");
  lua_pushstring(L, key);
  return lua_pcall(L, 2, 1, 0) == LUA_OK ? lua_tostring(L, -1) : NULL;
}

int lac_unknown_field(lua_State *L, lac_state *S, const char *key) {
  const char *use = instead_of(L, key);
  if (use != NULL)
    return lac_error(L, S, AC_INVALID, "a tensor has no field or method '%s'; %s", key, use);
  enum { MOST = 2048 };
  const char **names = lua_newuserdatauv(L, MOST * sizeof *names, 0);
  int n = lac_op_methods(S, names, MOST);
  for (lua_pushnil(L); lua_next(L, lua_upvalueindex(3)); lua_pop(L, 1))
    if (n < MOST && lua_type(L, -2) == LUA_TSTRING) names[n++] = lua_tostring(L, -2);
  const char *near = ac_nearest(key, names, n);
  return lac_error(L, S, AC_INVALID, "a tensor has no field or method '%s'%s%s%s", key,
                   near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                   near != NULL ? "'?" : "");
}
