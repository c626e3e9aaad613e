/* accel.optim.core, the native part of accel.optim: functions on the gradients of a whole list of
 * parameters, in one call each. Used by optimizers, clipping, unscaling and Module:zero_grad. */
#include "accel/autograd.h"
#include "bindings/core/lac.h"
#include "tensor/tensor_impl.h"

static ac_tensor *tensor_at(lua_State *L, lac_state *S, int idx) {
  return lac_check_tensor(L, S, idx, "params");
}

/* gradients(params [, due]) -> list with the gradient of each, false if there is none, and whether
 * all exist. With due only those still to be multiplied. The handles are new ones: they may be
 * spent. */
static int gradients(lua_State *L) {
  lac_state *S = lac_get(L);
  bool all = true;
  luaL_checktype(L, 1, LUA_TTABLE);
  const bool due = lua_toboolean(L, 2);
  lua_settop(L, 1);
  const lua_Integer n = (lua_Integer)lua_rawlen(L, 1);
  lua_createtable(L, (int)n, 0);
  for (lua_Integer i = 1; i <= n; i++) {
    lua_rawgeti(L, 1, i);
    /* before the tensor is read: the collector may run finalizers */
    lac_box *b = lac_box_push(L, S);
    const ac_tensor *t = tensor_at(L, S, 3);
    ac_tensor *g = !due || (t->flags & ACI_T_GRAD_DUE) ? ac_tensor_grad(t) : NULL;
    if (g != NULL) {
      ac_tensor_retain(g);
      lac_box_fill(S, b, g);
    } else {
      all = false;
      lua_pop(L, 1);
      lua_pushboolean(L, false);
    }
    lua_rawseti(L, 2, i);
    lua_pop(L, 1);
  }
  lua_pushboolean(L, all);
  return 2;
}

/* spend(list): releases the handles of gradients(), so that a gradient is freed when its parameter
 * drops it, not at the next collection. */
static int spend(lua_State *L) {
  lac_state *S = lac_get(L);
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  const lua_Integer n = (lua_Integer)lua_rawlen(L, 1);
  for (lua_Integer i = 1; i <= n; i++) {
    lua_rawgeti(L, 1, i);
    lac_box *b = lac_box_test(L, 2);
    if (b != NULL && b->t != NULL) lac_box_release(L, S, b, 0);
    lua_pop(L, 1);
  }
  return 0;
}

/* zero(params): no parameter of the list has a gradient any more. */
static int zero(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  const lua_Integer n = (lua_Integer)lua_rawlen(L, 1);
  for (lua_Integer i = 1; i <= n; i++) {
    lua_rawgeti(L, 1, i);
    if (ac_tensor_set_grad(tensor_at(L, S, 2), NULL, &e) != AC_OK) return lac_raise(L, S, &e);
    lua_pop(L, 1);
  }
  return 0;
}

/* count(params) -> how many have a gradient, and how many of these are still to be multiplied */
static int count(lua_State *L) {
  lac_state *S = lac_get(L);
  lua_Integer there = 0, due = 0;
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  const lua_Integer n = (lua_Integer)lua_rawlen(L, 1);
  for (lua_Integer i = 1; i <= n; i++) {
    lua_rawgeti(L, 1, i);
    const ac_tensor *t = tensor_at(L, S, 2);
    there += ac_tensor_grad(t) != NULL;
    due += (t->flags & ACI_T_GRAD_DUE) != 0;
    lua_pop(L, 1);
  }
  lua_pushinteger(L, there);
  lua_pushinteger(L, due);
  return 2;
}

/* The arguments (params, on): the length of the list, which is left alone on the stack. */
static lua_Integer take_list(lua_State *L, bool *on) {
  luaL_checktype(L, 1, LUA_TTABLE);
  *on = lua_toboolean(L, 2);
  lua_settop(L, 1);
  return (lua_Integer)lua_rawlen(L, 1);
}

/* defer(params, on): the gradients that are there now are still to be multiplied, or are not any
 * more. A gradient that comes in the place of one is a new one, and adding to one raises. */
static int defer(lua_State *L) {
  lac_state *S = lac_get(L);
  bool on;
  const lua_Integer n = take_list(L, &on);
  for (lua_Integer i = 1; i <= n; i++) {
    lua_rawgeti(L, 1, i);
    ac_tensor *t = tensor_at(L, S, 2);
    if (on && ac_tensor_grad(t) != NULL) t->flags |= ACI_T_GRAD_DUE;
    if (!on) t->flags &= (uint8_t)~ACI_T_GRAD_DUE;
    lua_pop(L, 1);
  }
  return 0;
}

/* other(params, on): position of the first parameter whose requires_grad differs from on. nil:
 * none. Called before every forward of a model that ranks share, so it checks flags alone. */
static int other(lua_State *L) {
  lac_state *S = lac_get(L);
  bool on;
  const lua_Integer n = take_list(L, &on);
  for (lua_Integer i = 1; i <= n; i++) {
    lua_rawgeti(L, 1, i);
    if (aci_requires_grad(tensor_at(L, S, 2)) != on) {
      lua_pushinteger(L, i);
      return 1;
    }
    lua_pop(L, 1);
  }
  return 0;
}

LAC_OPEN("accel.optim.core", gradients) {
  static const luaL_Reg funcs[] = {
      {"gradients", gradients}, {"spend", spend}, {"zero", zero}, {"count", count},
      {"defer", defer},         {"other", other}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}
