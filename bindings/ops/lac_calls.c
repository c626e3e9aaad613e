/* accel.calls.core: the calls of ops of a piece of a script, one after another, with their arguments
 * and results. accel.onnx reads a model's forward from them.
 *
 *   begin()             calls are recorded from now on
 *   finish() -> calls   ends it. A call is { op =, inplace =, args = { name = value }, ids = { name =
 *                       id }, results = { tensor ... }, result_ids = { id ... } }. An argument without
 *                       a value is missing. Lists of tensors have lists of ids. dims are 0-based
 *   id(tensor) -> id, storage, offset   integers that a tensor and its storage keep as long as somebody
 *                       holds them, and where it begins: what detach gives has another id on the same
 *                       storage, and is no call
 *
 * Calls inside a call (of composed ops) are recorded, the outer one is not. Every tensor of a recorded
 * call is held until finish returns it, so that no two have one id. */
#include <stdlib.h>
#include <string.h>

#include "bindings/core/lac.h"
#include "ops/core/ctx_impl.h"
#include "ops/core/sig.h"
#include "tensor/tensor_impl.h"

#define RECORD "accel.calls.record" /* its metatable, and the running one in the registry */

typedef struct call {
  const ac_op *op;
  bool inplace;
  int n_args, n_out;
  ac_value *arg; /* lists and texts of its own, tensors retained */
  ac_tensor **out;
} call;

typedef struct record {
  ac_ctx *ctx; /* NULL: ended */
  call *list;
  int64_t n, cap;
  bool failed; /* memory */
} record;

static void *copied(record *r, const void *from, size_t bytes) {
  void *to = malloc(bytes + 1);
  if (to == NULL) r->failed = true;
  else if (bytes > 0) memcpy(to, from, bytes);
  return to;
}

static void *list_of(ac_value *v, size_t *bytes) {
  switch (v->kind) {
    case AC_T_TENSORS: *bytes = (size_t)v->n * sizeof *v->tensors; return v->tensors;
    case AC_T_FLOATS:
      *bytes = (size_t)v->n * sizeof *v->floats;
      return (void *)(uintptr_t)v->floats;
    case AC_T_INTS:
    case AC_T_DIMS:
    case AC_T_SHAPE: *bytes = (size_t)v->n * sizeof *v->ints; return (void *)(uintptr_t)v->ints;
    case AC_T_STRING: *bytes = v->str ? strlen(v->str) + 1 : 0; return (void *)(uintptr_t)v->str;
    default: return NULL;
  }
}

static void keep_value(record *r, const ac_value *from, ac_value *to) {
  size_t bytes = 0;
  *to = *from;
  void *list = list_of(to, &bytes);
  if (list != NULL) {
    void *own = copied(r, list, bytes);
    if (own == NULL) to->kind = AC_T_NONE;
    else if (to->kind == AC_T_TENSORS) to->tensors = own;
    else if (to->kind == AC_T_FLOATS) to->floats = own;
    else if (to->kind == AC_T_STRING) to->str = own;
    else to->ints = own;
  }
  if (to->kind == AC_T_TENSOR && to->tensor != NULL) ac_tensor_retain(to->tensor);
  for (int i = 0; to->kind == AC_T_TENSORS && i < to->n; i++)
    if (to->tensors[i] != NULL) ac_tensor_retain(to->tensors[i]);
}

static void drop_value(ac_value *v) {
  size_t bytes;
  if (v->kind == AC_T_TENSOR) ac_tensor_release(v->tensor);
  for (int i = 0; v->kind == AC_T_TENSORS && i < v->n; i++) ac_tensor_release(v->tensors[i]);
  free(list_of(v, &bytes));
}

static void after(void *user, const ac_frame *f, ac_status st) {
  record *r = user;
  if (st != AC_OK || r->failed) return;
  if (r->n == r->cap) {
    const int64_t cap = r->cap > 0 ? 2 * r->cap : 256;
    call *list = realloc(r->list, (size_t)cap * sizeof *list);
    if (list == NULL) {
      r->failed = true;
      return;
    }
    r->list = list;
    r->cap = cap;
  }
  call c = {.op = f->op, .inplace = f->inplace || f->op->mutates != 0};
  c.arg = calloc((size_t)f->n_args + 1, sizeof *c.arg);
  c.out = calloc((size_t)f->n_out + 1, sizeof *c.out);
  if (c.arg == NULL || c.out == NULL) {
    free(c.arg);
    free(c.out);
    r->failed = true;
    return;
  }
  for (c.n_args = 0; c.n_args < f->n_args; c.n_args++)
    keep_value(r, &f->args[c.n_args], &c.arg[c.n_args]);
  for (c.n_out = 0; c.n_out < f->n_out; c.n_out++)
    if ((c.out[c.n_out] = f->out[c.n_out]) != NULL) ac_tensor_retain(c.out[c.n_out]);
  r->list[r->n++] = c;
}

static int collect(lua_State *L) {
  record *r = lua_touserdata(L, 1);
  if (r->ctx != NULL) aci_ctx_remove_observer(r->ctx, r);
  r->ctx = NULL;
  for (int64_t i = 0; i < r->n; i++) {
    call *c = &r->list[i];
    for (int k = 0; k < c->n_args; k++) drop_value(&c->arg[k]);
    for (int k = 0; k < c->n_out; k++) ac_tensor_release(c->out[k]);
    free(c->arg);
    free(c->out);
  }
  free(r->list);
  r->list = NULL;
  r->n = 0;
  return 0;
}

static int begin(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  if (lua_getfield(L, LUA_REGISTRYINDEX, RECORD ".running") != LUA_TNIL)
    return luaL_error(L, "calls are being recorded already");
  record *r = lua_newuserdatauv(L, sizeof *r, 0);
  memset(r, 0, sizeof *r);
  luaL_setmetatable(L, RECORD);
  if (aci_ctx_add_observer(S->ctx, (aci_observer){NULL, after, r}, &e) != AC_OK)
    return lac_raise(L, S, &e);
  r->ctx = S->ctx;
  lua_setfield(L, LUA_REGISTRYINDEX, RECORD ".running");
  return 0;
}

static void push_ints(lua_State *L, const ac_value *v) {
  lua_createtable(L, v->n, 0);
  for (int i = 0; i < v->n; i++) {
    if (v->ints[i] == AC_INT_NONE) lua_pushboolean(L, 0);
    else lua_pushinteger(L, v->ints[i]);
    lua_rawseti(L, -2, i + 1);
  }
}

/* Pushes a value, or nothing for none. */
static bool push_value(lua_State *L, lac_state *S, const aci_param *p, const ac_value *v) {
  switch (v->kind) {
    case AC_T_TENSOR: lac_push_tensor(L, S, v->tensor); return true;
    case AC_T_TENSORS:
      lua_createtable(L, v->n, 0);
      for (int i = 0; i < v->n; i++) {
        lac_push_tensor(L, S, v->tensors[i]);
        lua_rawseti(L, -2, i + 1);
      }
      return true;
    case AC_T_SCALAR:
      if (v->scalar.kind == AC_SCALAR_NONE) return false;
      if (v->scalar.kind == AC_SCALAR_FLOAT) lua_pushnumber(L, v->scalar.f);
      else lua_pushinteger(L, v->scalar.i);
      return true;
    case AC_T_INT:
    case AC_T_POS:
    case AC_T_DIM: lua_pushinteger(L, v->i); return true;
    case AC_T_ENUM:
      lua_pushstring(L, v->i >= 0 && v->i < p->n_enum ? p->enum_name[v->i] : "");
      return true;
    case AC_T_FLOAT: lua_pushnumber(L, v->f); return true;
    case AC_T_BOOL: lua_pushboolean(L, v->b); return true;
    case AC_T_STRING: lua_pushstring(L, v->str); return true;
    case AC_T_DTYPE: lua_pushstring(L, ac_dtype_name(v->dtype)); return true;
    case AC_T_INTS:
    case AC_T_DIMS:
    case AC_T_SHAPE: push_ints(L, v); return true;
    case AC_T_FLOATS:
      lua_createtable(L, v->n, 0);
      for (int i = 0; i < v->n; i++) {
        lua_pushnumber(L, v->floats[i]);
        lua_rawseti(L, -2, i + 1);
      }
      return true;
    default: return false;
  }
}

static void push_id(lua_State *L, const ac_tensor *t) {
  lua_pushinteger(L, (lua_Integer)(intptr_t)t);
}

/* { op =, inplace =, args =, ids =, results =, result_ids = } */
static void push_call(lua_State *L, lac_state *S, const call *c) {
  const aci_sig *sig = aci_op_sig(c->op);
  lua_createtable(L, 0, 6);
  lua_pushstring(L, ac_op_name(c->op));
  lua_setfield(L, -2, "op");
  lua_pushboolean(L, c->inplace);
  lua_setfield(L, -2, "inplace");
  lua_newtable(L);
  lua_newtable(L);
  for (int i = 0; i < c->n_args; i++) {
    const ac_value *v = &c->arg[i];
    if (!push_value(L, S, &sig->param[i], v)) continue;
    lua_setfield(L, -3, sig->param[i].name);
    if (v->kind == AC_T_TENSOR) {
      push_id(L, v->tensor);
    } else if (v->kind == AC_T_TENSORS) {
      lua_createtable(L, v->n, 0);
      for (int k = 0; k < v->n; k++) {
        push_id(L, v->tensors[k]);
        lua_rawseti(L, -2, k + 1);
      }
    } else {
      continue;
    }
    lua_setfield(L, -2, sig->param[i].name);
  }
  lua_setfield(L, -3, "ids");
  lua_setfield(L, -2, "args");
  lua_createtable(L, c->n_out, 0);
  lua_createtable(L, c->n_out, 0);
  for (int i = 0; i < c->n_out; i++) {
    lac_push_tensor(L, S, c->out[i]);
    if (lua_isnil(L, -1)) lua_pushboolean(L, 0), lua_replace(L, -2);
    lua_rawseti(L, -3, i + 1);
    push_id(L, c->out[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -3, "result_ids");
  lua_setfield(L, -2, "results");
}

static int finish(lua_State *L) {
  lac_state *S = lac_get(L);
  if (lua_getfield(L, LUA_REGISTRYINDEX, RECORD ".running") == LUA_TNIL)
    return luaL_error(L, "no calls are being recorded");
  record *r = luaL_checkudata(L, -1, RECORD);
  lua_pushnil(L);
  lua_setfield(L, LUA_REGISTRYINDEX, RECORD ".running");
  if (r->ctx != NULL) aci_ctx_remove_observer(r->ctx, r);
  r->ctx = NULL;
  if (r->failed) return luaL_error(L, "out of memory for the recorded calls");
  lua_createtable(L, (int)r->n, 0);
  for (int64_t i = 0; i < r->n; i++) {
    push_call(L, S, &r->list[i]);
    lua_rawseti(L, -2, i + 1);
  }
  return 1; /* the collector frees the record once the boxes hold their tensors */
}

static int id(lua_State *L) {
  const lac_box *b = lac_box_test(L, 1);
  if (b == NULL || b->t == NULL) return luaL_argerror(L, 1, "expected a tensor");
  push_id(L, b->t);
  lua_pushinteger(L, (lua_Integer)(intptr_t)b->t->storage);
  lua_pushinteger(L, b->t->offset);
  return 3;
}

LAC_OPEN("accel.calls.core", calls) {
  static const luaL_Reg funcs[] = {{"begin", begin}, {"finish", finish}, {"id", id}, {NULL, NULL}};
  if (luaL_newmetatable(L, RECORD)) {
    lua_pushcfunction(L, collect);
    lua_setfield(L, -2, "__gc");
  }
  lua_pop(L, 1);
  lac_setfuncs(L, S, funcs);
}
