/* DLPack in scripts: x:to_dlpack() makes a capsule, accel.from_dlpack(capsule) a tensor of it. A
 * capsule holds one DLManagedTensor until somebody takes it: from_dlpack, or another library
 * through ac_lua_take_dlpack. */
#include "accel/lua.h"
#include "bindings/core/lac.h"
#include "tensor/dlpack.h"

#define CAPSULE "accel.DLPack"

typedef struct capsule {
  struct DLManagedTensor *m; /* NULL: taken */
} capsule;

static int capsule_close(lua_State *L) {
  capsule *c = luaL_checkudata(L, 1, CAPSULE);
  struct DLManagedTensor *m = c->m;
  c->m = NULL;
  if (m != NULL && m->deleter != NULL) m->deleter(m);
  return 0;
}

static int capsule_tostring(lua_State *L) {
  const capsule *c = luaL_checkudata(L, 1, CAPSULE);
  if (c->m == NULL) lua_pushliteral(L, "dlpack capsule (taken)");
  else lua_pushfstring(L, "dlpack capsule (rank %d)", (int)c->m->dl_tensor.ndim);
  return 1;
}

static capsule *capsule_push(lua_State *L) {
  capsule *c = lua_newuserdatauv(L, sizeof *c, 0);
  c->m = NULL;
  luaL_setmetatable(L, CAPSULE);
  return c;
}

static int to_dlpack(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  capsule *c = capsule_push(L);
  if (ac_tensor_to_dlpack(lac_check_tensor(L, S, 1, "self"), &c->m, &e) != AC_OK)
    return lac_raise(L, S, &e);
  return 1;
}

static int from_dlpack(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  ac_device *cpu = NULL;
  char buf[96];
  lac_box *b = lac_box_push(L, S);
  capsule *c = luaL_testudata(L, 1, CAPSULE);
  if (c == NULL)
    return lac_argerror(L, S, AC_INVALID, NULL, 1, "capsule",
                        "expected what to_dlpack made, got %s",
                        lac_typename(L, 1, buf, sizeof buf));
  if (c->m == NULL)
    return lac_error(L, S, AC_RELEASED,
                     "from_dlpack: the capsule was used before; each serves one tensor");
  if (ac_ctx_device(S->ctx, "cpu", &cpu, &e) != AC_OK) return lac_raise(L, S, &e);
  ac_tensor *t = NULL;
  if (ac_tensor_from_dlpack(cpu, c->m, &t, &e) != AC_OK) return lac_raise(L, S, &e);
  c->m = NULL;
  lac_box_fill(S, b, t);
  return 1;
}

void ac_lua_push_dlpack(lua_State *L, struct DLManagedTensor *m) {
  if (lac_state_of(L) == NULL) luaL_error(L, "accel is not open in this Lua state");
  capsule_push(L)->m = m;
}

struct DLManagedTensor *ac_lua_take_dlpack(lua_State *L, int idx) {
  capsule *c = lac_state_of(L) != NULL ? luaL_testudata(L, idx, CAPSULE) : NULL;
  struct DLManagedTensor *m = c != NULL ? c->m : NULL;
  if (m != NULL) c->m = NULL;
  return m;
}

LAC_OPEN("accel", dlpack) {
  static const luaL_Reg funcs[] = {{"from_dlpack", from_dlpack}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"to_dlpack", to_dlpack}, {NULL, NULL}};
  static const luaL_Reg meta[] = {{"__gc", capsule_close},
                                  {"__close", capsule_close},
                                  {"__tostring", capsule_tostring},
                                  {NULL, NULL}};
  luaL_newmetatable(L, CAPSULE);
  luaL_setfuncs(L, meta, 0);
  lua_pop(L, 1);
  lac_setfuncs(L, S, funcs);
  lua_getfield(L, -1, "Tensor");
  lac_setfuncs(L, S, methods);
  lua_pop(L, 1);
}
