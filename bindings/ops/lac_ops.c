/* The ops as scripts find them: functions of accel and methods of tensors, accel.op(name) for those
 * without a name there, accel.ops() for tools. call.c runs each call. */
#include <string.h>

#include "bindings/core/callback.h"
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

int lac_op_methods(lac_state *S, const char **names, int most) {
  int n = 0;
  for (int i = 0; i < aci_ctx_n_ops(S->ctx) && n < most; i++) {
    const ac_op *op = aci_ctx_op(S->ctx, i);
    if (!op->desc->hidden && is_method(op)) names[n++] = op->name;
  }
  return n;
}

/* Adds an op to the tables of functions and methods at these places of the stack. */
static void add_op(lua_State *L, lac_state *S, const ac_op *op, int funcs, int methods) {
  if (op->desc->hidden) return;
  lua_pushstring(L, op->name);
  lac_push_op(L, S, op);
  if (is_method(op)) {
    lua_pushvalue(L, -2);
    lua_pushvalue(L, -2);
    lua_rawset(L, methods);
  }
  lua_rawset(L, funcs);
}

/* ac_op_register in a context that has scripts: the op becomes a function of accel and a method. */
static int add_late_op(lua_State *L) {
  lac_state *S = lac_state_of(L);
  const ac_op *op = lua_touserdata(L, 1);
  lua_settop(L, 0);
  if (S == NULL || lua_getfield(L, LUA_REGISTRYINDEX, "accel.core") != LUA_TTABLE) return 0;
  lua_pushstring(L, op->name);
  if (lua_rawget(L, 1) != LUA_TNIL)
    return lac_error(L, S, AC_STATE, "op %s: accel.%s is something else already; rename the op",
                     op->name, op->name);
  lua_settop(L, 1);
  lua_pushliteral(L, "Tensor");
  lua_rawget(L, 1);
  lua_pushstring(L, op->name);
  if (is_method(op) && lua_rawget(L, 2) != LUA_TNIL)
    return lac_error(L, S, AC_STATE, "op %s: tensors have a field of that name; rename the op",
                     op->name);
  add_op(L, S, op, 1, 2);
  return 0;
}

static ac_status op_added(void *user, const ac_op *op, ac_err *e) {
  lac_state *S = user;
  ac_status st = lac_protect(S, add_late_op, (void *)(uintptr_t)op, e);
  if (st == AC_OK) return AC_OK;
  lac_forget_error(lac_thread(S), S);
  if (e != NULL) e->code = AC_STATE;
  return AC_STATE;
}

/* ---- found on first use ---- */

/* x:squeeze_() and others whose op gives a view: x stands for the view of what it was. Upvalue 3:
 * the op's function. */
static int rebind(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_tensor *t = lac_check_tensor(L, S, 1, "self");
  if (aci_is_leaf(t) && aci_requires_grad(t))
    return lac_error(L, S, AC_GRAD,
                     "a leaf that requires gradients cannot change its shape in place; assign "
                     "the view to a variable");
  const int n = lua_gettop(L);
  lua_pushvalue(L, 1);
  lua_insert(L, 1);
  lua_pushvalue(L, lua_upvalueindex(3));
  lua_insert(L, 2);
  lua_call(L, n, 1);
  lac_box_swap(L, S, 1, 2);
  lua_settop(L, 1);
  return 1;
}

/* "squeeze" for "squeeze_", if that op's in-place form gives its tensor another view. */
static const ac_op *view_of_name(lac_state *S, const char *name) {
  char base[40];
  const size_t n = strlen(name);
  ac_err e;
  if (n < 2 || n > sizeof base || name[n - 1] != '_') return NULL;
  memcpy(base, name, n - 1);
  base[n - 1] = '\0';
  const ac_op *op = ac_op_find(S->ctx, base);
  return op != NULL && op->desc->inplace && !op->inplace && !op->desc->hidden &&
                 aci_op_parse(op, &e) == AC_OK && op->is_view
             ? op
             : NULL;
}

/* __index of the tables of functions and methods: the ops, by their names and other names. A script
 * uses few of them, so that Lua's heap stays small. Upvalue 3: methods? */
static int late_name(lua_State *L) {
  lac_state *S = lac_get(L);
  const bool methods = lua_toboolean(L, lua_upvalueindex(3));
  luaL_checktype(L, 1, LUA_TTABLE); /* a script can reach it by getmetatable */
  const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";
  const ac_op *op = ac_op_find(S->ctx, name), *view = view_of_name(S, name);
  if (op != NULL && !op->desc->hidden && (!methods || is_method(op))) {
    lac_push_op(L, S, op);
  } else if (view != NULL) {
    lac_push_upvalues(L);
    lac_push_op(L, S, view);
    lua_pushcclosure(L, rebind, 3);
  } else {
    return 0;
  }
  lua_pushvalue(L, 2);
  lua_pushvalue(L, -2);
  lua_rawset(L, 1);
  return 1;
}

static void open_late_names(lua_State *L, int table, bool methods) {
  lua_createtable(L, 0, 2);
  lac_push_upvalues(L);
  lua_pushboolean(L, methods);
  lua_pushcclosure(L, late_name, 3);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, table);
}

void lac_open_ops(lua_State *L, lac_state *S, int funcs, int methods) {
  funcs = lua_absindex(L, funcs);
  methods = lua_absindex(L, methods);
  open_late_names(L, funcs, false);
  open_late_names(L, methods, true);
  S->ctx->op_added = op_added;
  S->ctx->op_added_user = S;
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

/* accel.ops(): list of {name, signature, alias, hidden, method, inplace, differentiable} */
static int op_list(lua_State *L) {
  lac_state *S = lac_get(L);
  int n = aci_ctx_n_ops(S->ctx);
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    const ac_op *op = aci_ctx_op(S->ctx, i);
    lua_createtable(L, 0, 7);
    lua_pushstring(L, op->name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, op->desc->sig);
    lua_setfield(L, -2, "signature");
    lua_pushstring(L, op->desc->alias != NULL ? op->desc->alias : "");
    lua_setfield(L, -2, "alias");
    lua_pushboolean(L, op->desc->hidden);
    lua_setfield(L, -2, "hidden");
    lua_pushboolean(L, is_method(op));
    lua_setfield(L, -2, "method");
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
