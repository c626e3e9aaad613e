/* The ops as scripts find them: functions of accel and methods of tensors, accel.op(name) for those
 * without a name there, accel.ops() for tools. call.c runs each call. */
#include <string.h>

#include "bindings/core/lac.h"
#include "bindings/core/op.h"
#include "ops/core/ctx_impl.h"

/* Does the first parameter take a tensor, so that the op is a method too? Read from the text:
 * nothing is parsed before its first call. */
static bool is_method(const ac_op *op) {
  const char *colon = strchr(op->desc->sig, ':');
  if (colon == NULL) return false;
  colon += 1 + strspn(colon + 1, " ");
  return (strncmp(colon, "tensor", 6) == 0 && colon[6] != 's') || strncmp(colon, "operand", 7) == 0;
}

void lac_open_ops(lua_State *L, lac_state *S, int funcs, int methods) {
  funcs = lua_absindex(L, funcs);
  methods = lua_absindex(L, methods);
  for (int i = 0; i < aci_ctx_n_ops(S->ctx); i++) {
    const ac_op *op = aci_ctx_op(S->ctx, i);
    if (op->desc->hidden) continue;
    lac_push_op(L, S, op);
    if (is_method(op)) {
      lua_pushvalue(L, -1);
      lua_setfield(L, methods, op->name);
    }
    lua_setfield(L, funcs, op->name);
  }
}

/* accel.op(name): the function of any op, those without a name in accel included (backward
 * kernels). */
static int op_by_name(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *name = lac_check_string(L, S, 1, "name", NULL);
  const ac_op *op = ac_op_find(S->ctx, name);
  if (op == NULL) {
    int n = aci_ctx_n_ops(S->ctx);
    const char **names = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof *names, 0);
    for (int i = 0; i < n; i++) names[i] = aci_ctx_op(S->ctx, i)->name;
    const char *near = ac_nearest(name, names, n);
    return lac_error(L, S, AC_NOT_FOUND, "no op '%s'%s%s%s", name, near ? "; did you mean '" : "",
                     near ? near : "", near ? "'?" : "");
  }
  lac_push_op(L, S, op);
  return 1;
}

/* accel.ops(): list of {name, signature, hidden, inplace, differentiable} */
static int op_list(lua_State *L) {
  lac_state *S = lac_get(L);
  int n = aci_ctx_n_ops(S->ctx);
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    const ac_op *op = aci_ctx_op(S->ctx, i);
    lua_createtable(L, 0, 5);
    lua_pushstring(L, op->name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, op->desc->sig);
    lua_setfield(L, -2, "signature");
    lua_pushboolean(L, op->desc->hidden);
    lua_setfield(L, -2, "hidden");
    lua_pushboolean(L, op->inplace);
    lua_setfield(L, -2, "inplace");
    lua_pushboolean(L,
                    !op->desc->nondiff && (op->desc->grad != NULL || op->desc->composed != NULL));
    lua_setfield(L, -2, "differentiable");
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

LAC_OPEN("accel", op_list) {
  static const luaL_Reg funcs[] = {{"op", op_by_name}, {"ops", op_list}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}
