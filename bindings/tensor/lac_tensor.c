/* Tensors as Lua values: fields (shape dtype device grad requires_grad ndim is_leaf grad_fn),
 * operators, and the methods that are not ops. Methods and fields share one table, accel.Tensor:
 * functions are methods, integers number the fields. Scripts may add methods to it. lac_index.c
 * handles t[key] for keys other than names, lac_convert.c conversions to plain data and to other
 * dtypes. */
#include <stdlib.h>
#include <string.h>

#include "accel/autograd.h"
#include "bindings/core/key.h"
#include "bindings/core/lac.h"
#include "bindings/core/op.h"
#include "bindings/tensor/unknown.h"

enum {
  F_SHAPE = 1,
  F_DTYPE,
  F_DEVICE,
  F_GRAD,
  F_REQUIRES_GRAD,
  F_NDIM,
  F_IS_LEAF,
  F_GRAD_FN,
  F_QUANT_STATE,
  F_DATA,
  F_ITEMSIZE,
  F_NBYTES,
  F_IS_CPU,
  F_IS_CUDA,
  F_IS_META,
  F_RETAINS_GRAD,
  F_IS_QUANTIZED,
  F_LAYOUT,
  F_FALSE, /* kinds of tensors and devices that accel does not have */
  F_VIEWS  /* and following: views[id - F_VIEWS] */
};
static const struct field {
  const char *name;
  int id;
} fields[] = {{"shape", F_SHAPE},
              {"dtype", F_DTYPE},
              {"device", F_DEVICE},
              {"grad", F_GRAD},
              {"requires_grad", F_REQUIRES_GRAD},
              {"ndim", F_NDIM},
              {"is_leaf", F_IS_LEAF},
              {"grad_fn", F_GRAD_FN},
              {"quant_state", F_QUANT_STATE},
              {"data", F_DATA},
              {"itemsize", F_ITEMSIZE},
              {"nbytes", F_NBYTES},
              {"is_cpu", F_IS_CPU},
              {"is_cuda", F_IS_CUDA},
              {"is_meta", F_IS_META},
              {"retains_grad", F_RETAINS_GRAD},
              {"is_quantized", F_IS_QUANTIZED},
              {"layout", F_LAYOUT},
              {"is_sparse", F_FALSE},
              {"is_sparse_csr", F_FALSE},
              {"is_nested", F_FALSE},
              {"is_mps", F_FALSE},
              {"is_xla", F_FALSE},
              {"is_ipu", F_FALSE},
              {"is_maia", F_FALSE}};

/* Fields that are the result of an op. They may be written as calls, too: x.mT and x:mT(). */
static const struct view_field {
  const char *name, *op;
  int rank; /* 0: any */
} views[] = {{"T", "t", 0}, {"H", "adjoint", 2}, {"mT", "mT", 0}, {"mH", "adjoint", 0}};
enum { N_VIEWS = sizeof views / sizeof views[0] };

/* ---- fields ---- */

static const char key_extents;

/* "(2, 3)" */
static int extents_tostring(lua_State *L) {
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  luaL_addchar(&b, '(');
  const lua_Unsigned n = lua_istable(L, 1) ? lua_rawlen(L, 1) : 0;
  for (lua_Unsigned i = 1; i <= n; i++) {
    if (i > 1) luaL_addstring(&b, ", ");
    lua_rawgeti(L, 1, (lua_Integer)i);
    luaL_tolstring(L, -1, NULL);
    lua_remove(L, -2);
    luaL_addvalue(&b);
  }
  luaL_addchar(&b, ')');
  luaL_pushresult(&b);
  return 1;
}

static int extents_concat(lua_State *L) {
  luaL_tolstring(L, 1, NULL);
  luaL_tolstring(L, 2, NULL);
  lua_concat(L, 2);
  return 1;
}

/* x.shape == y.shape, x.shape == some list: the same numbers. */
static int extents_eq(lua_State *L) {
  const lua_Unsigned n = lua_rawlen(L, 1);
  /* anybody may call this */
  bool same = lua_istable(L, 1) && lua_istable(L, 2) && n == lua_rawlen(L, 2);
  for (lua_Unsigned i = 1; same && i <= n; i++) {
    lua_rawgeti(L, 1, (lua_Integer)i);
    lua_rawgeti(L, 2, (lua_Integer)i);
    same = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
  }
  lua_pushboolean(L, same);
  return 1;
}

/* x.shape[-1] is the last extent. x.shape[0] raises, as x[0] does; past the end is nil, where loops
 * over a list stop. */
static int extents_index(lua_State *L) {
  int exact = 0;
  const lua_Integer i = lua_tointegerx(L, 2, &exact),
                    n = lua_istable(L, 1) ? (lua_Integer)lua_rawlen(L, 1) : 0;
  if (!exact || i > n) return 0;
  if (i == 0 || i < -n)
    return luaL_error(L, "index: positions count from 1 (or from -1, the last); got %I of %I", i,
                      n);
  lua_rawgeti(L, 1, n + 1 + i);
  return 1;
}

/* A plain list that prints as "(2, 3)" and equals lists of the same numbers. */
static void push_ints(lua_State *L, int n, const int64_t *of) {
  /* making the table may run the collector, and a finalizer release the tensor */
  int64_t v[AC_MAX_DIMS];
  memcpy(v, of, (size_t)n * sizeof *v);
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushinteger(L, v[i]);
    lua_rawseti(L, -2, i + 1);
  }
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &key_extents) == LUA_TNIL) {
    static const luaL_Reg meta[] = {{"__tostring", extents_tostring},
                                    {"__concat", extents_concat},
                                    {"__eq", extents_eq},
                                    {"__index", extents_index},
                                    {NULL, NULL}};
    lua_pop(L, 1);
    luaL_newlib(L, meta);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &key_extents);
  }
  lua_setmetatable(L, -2);
}

/* The quantisation of a tensor, nil for other tensors. */
static void push_quant_state(lua_State *L, const ac_tensor *t) {
  const ac_layout *l = ac_tensor_layout(t);
  if (l == NULL) {
    lua_pushnil(L);
    return;
  }
  /* making the table may run the collector, and a finalizer release the tensor */
  const ac_layout copy = *l;
  lua_createtable(L, 0, 6);
  lua_pushstring(L, ac_quant_type_name(copy.type));
  lua_setfield(L, -2, "quant_type");
  lua_pushstring(L, ac_dtype_name(copy.dtype));
  lua_setfield(L, -2, "dtype");
  lua_pushinteger(L, copy.blocksize);
  lua_setfield(L, -2, "blocksize");
  lua_pushboolean(L, copy.nested);
  lua_setfield(L, -2, "nested");
  push_ints(L, copy.ndim, copy.shape);
  lua_setfield(L, -2, "shape");
}

static ac_tensor *self_of(lua_State *L, lac_state *S) { return lac_check_tensor(L, S, 1, "self"); }

static int push_view(lua_State *L, lac_state *S, const struct view_field *v) {
  lac_box *b = lac_box_push(L, S); /* before self is read: the collector may run finalizers */
  ac_tensor *t = self_of(L, S);
  char shape[160];
  if (v->rank > 0 && t->ndim != v->rank)
    return lac_error(L, S, AC_SHAPE, "x.%s is of a matrix, and the shape is %s; use x.mH", v->name,
                     aci_shape_str(t->ndim, t->shape, shape, sizeof shape));
  lac_call_op(L, S, v->op, &(ac_value){.kind = AC_T_TENSOR, .tensor = t}, 1, b);
  return 1;
}

/* x:mT() reads the field and calls what it got: the view, with x. */
static int tensor_call(lua_State *L) {
  lac_state *S = lac_get(L);
  const lac_box *view = lac_box_test(L, 1), *of = lac_box_test(L, 2);
  if (lua_gettop(L) != 2 || view == NULL || of == NULL || view->t == NULL || of->t == NULL ||
      view->t->storage != of->t->storage || view == of)
    return lac_error(L, S, AC_INVALID, "a tensor is not a function; t[i] is an element");
  lua_settop(L, 1);
  return 1;
}

/* The same bytes without history. */
static int push_data(lua_State *L, lac_state *S) {
  lac_box *b = lac_box_push(L, S);
  ac_tensor *out = NULL;
  ac_err e;
  if (ac_tensor_detach(self_of(L, S), &out, &e) != AC_OK) return lac_raise(L, S, &e);
  lac_box_fill(S, b, out);
  return 1;
}

static int push_field(lua_State *L, lac_state *S, ac_tensor *t, int id) {
  if (id >= F_VIEWS) return push_view(L, S, &views[id - F_VIEWS]);
  switch (id) {
    case F_DATA: return push_data(L, S);
    case F_ITEMSIZE: lua_pushinteger(L, (lua_Integer)aci_dsize((ac_dtype)t->dtype)); break;
    case F_NBYTES: lua_pushinteger(L, t->numel * (lua_Integer)aci_dsize((ac_dtype)t->dtype)); break;
    case F_IS_CPU: lua_pushboolean(L, t->device->kind == AC_DEV_CPU); break;
    case F_IS_CUDA: lua_pushboolean(L, strncmp(t->device->name, "cuda", 4) == 0); break;
    case F_IS_META: lua_pushboolean(L, t->device->kind == AC_DEV_META); break;
    case F_IS_QUANTIZED: lua_pushboolean(L, ac_tensor_layout(t) != NULL); break;
    case F_LAYOUT: lua_pushliteral(L, "strided"); break;
    case F_FALSE: lua_pushboolean(L, false); break;
    case F_RETAINS_GRAD: lua_pushboolean(L, ac_tensor_retains_grad(t)); break;
    case F_SHAPE: push_ints(L, t->ndim, t->shape); break;
    case F_DTYPE: lua_pushstring(L, ac_dtype_name((ac_dtype)t->dtype)); break;
    case F_DEVICE: lua_pushstring(L, t->device->name); break;
    case F_GRAD: lac_push_tensor(L, S, ac_tensor_grad(t)); break;
    case F_REQUIRES_GRAD: lua_pushboolean(L, aci_requires_grad(t)); break;
    case F_NDIM: lua_pushinteger(L, t->ndim); break;
    case F_IS_LEAF: lua_pushboolean(L, aci_is_leaf(t)); break;
    case F_QUANT_STATE: push_quant_state(L, t); break;
    case F_GRAD_FN: lua_pushstring(L, t->grad_fn != NULL ? ac_tensor_grad_fn_name(t) : NULL); break;
    default: lua_pushnil(L);
  }
  return 1;
}

static int tensor_index(lua_State *L) {
  lac_state *S = lua_touserdata(L, LAC_STATE);
  int type = lua_type(L, 2);
  if (type == LUA_TSTRING) {
    lua_pushvalue(L, 2);
    int found = lua_rawget(L, lua_upvalueindex(3));
    if (found == LUA_TFUNCTION) return 1;
    if (found == LUA_TNUMBER) return push_field(L, S, self_of(L, S), (int)lua_tointeger(L, -1));
    if (found != LUA_TNIL) return 1;
    lua_pushvalue(L, 2); /* names that are looked up on first use */
    if (lua_gettable(L, lua_upvalueindex(3)) != LUA_TNIL) return 1;
    return lac_unknown_field(L, S, lua_tostring(L, 2));
  }
  return lac_index_get(L, lac_get(L));
}

static int tensor_newindex(lua_State *L) {
  lac_state *S = lac_get(L);
  if (lua_type(L, 2) != LUA_TSTRING) return lac_index_set(L, S);
  ac_tensor *t = self_of(L, S);
  ac_err e;
  int id = 0;
  lua_pushvalue(L, 2);
  if (lua_rawget(L, lua_upvalueindex(3)) == LUA_TNUMBER) id = (int)lua_tointeger(L, -1);
  lua_pop(L, 1);
  if (id == F_GRAD) {
    ac_tensor *g = lua_isnil(L, 3) ? NULL : lac_check_tensor(L, S, 3, "grad");
    if (ac_tensor_set_grad(t, g, &e) != AC_OK) return lac_raise(L, S, &e);
    return 0;
  }
  if (id == F_REQUIRES_GRAD) {
    bool on = lac_check_bool(L, S, 3, "requires_grad");
    if (ac_tensor_set_requires_grad(t, on, &e) != AC_OK) return lac_raise(L, S, &e);
    if (on && aci_is_leaf(t) && !t->ext) lac_box_canonical(L, S, 1);
    return 0;
  }
  if (id == F_DATA) {
    if (ac_tensor_set_data(t, lac_check_tensor(L, S, 3, "data"), &e) != AC_OK)
      return lac_raise(L, S, &e);
    lac_charge(S, t);
    return 0;
  }
  if (id != 0)
    return lac_error(L, S, AC_INVALID, "field '%s' of a tensor cannot be assigned",
                     lua_tostring(L, 2));
  return lac_unknown_field(L, S, lua_tostring(L, 2));
}

/* ---- geometry ---- */

static int size(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_tensor *t = self_of(L, S);
  lac_check_last(L, S, 2);
  if (lua_isnoneornil(L, 2)) push_ints(L, t->ndim, t->shape);
  else lua_pushinteger(L, t->shape[lac_check_pos(L, S, 2, t->ndim, "dim")]);
  return 1;
}

static int stride(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_tensor *t = self_of(L, S);
  lac_check_last(L, S, 2);
  if (lua_isnoneornil(L, 2)) push_ints(L, t->ndim, t->stride);
  else lua_pushinteger(L, t->stride[lac_check_pos(L, S, 2, t->ndim, "dim")]);
  return 1;
}

static int numel(lua_State *L) {
  lua_pushinteger(L, self_of(L, lac_get(L))->numel);
  return 1;
}

static int dim(lua_State *L) {
  lua_pushinteger(L, self_of(L, lac_get(L))->ndim);
  return 1;
}

static int element_size(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)aci_dsize((ac_dtype)self_of(L, lac_get(L))->dtype));
  return 1;
}

static int storage_offset(lua_State *L) {
  lua_pushinteger(L, self_of(L, lac_get(L))->offset);
  return 1;
}

static int data_ptr(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)(intptr_t)ac_tensor_data(self_of(L, lac_get(L))));
  return 1;
}

static int is_contiguous(lua_State *L) {
  lua_pushboolean(L, aci_is_contiguous(self_of(L, lac_get(L))));
  return 1;
}

static int is_complex(lua_State *L) {
  lua_pushboolean(L, aci_is_complex(self_of(L, lac_get(L))));
  return 1;
}

static int is_floating_point(lua_State *L) {
  lua_pushboolean(L, ac_dtype_is_float((ac_dtype)self_of(L, lac_get(L))->dtype));
  return 1;
}

static int is_tensor(lua_State *L) {
  lua_pushboolean(L, lac_box_test(L, 1) != NULL);
  return 1;
}

static int release(lua_State *L) {
  lac_state *S = lua_touserdata(L, LAC_STATE);
  lac_box *b = lac_box_test(L, 1);
  if (b == NULL)
    return lac_argerror(L, S, AC_INVALID, "release", 1, "self", "expected tensor, got %s",
                        luaL_typename(L, 1));
  if (b->t != NULL) lac_box_release(L, S, b, lac_site_here(L, S));
  return 0;
}

/* ---- operators that are not ops ---- */

static int tensor_len(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_tensor *t = self_of(L, S);
  if (t->ndim == 0) return lac_error(L, S, AC_SHAPE, "#t: a tensor of rank 0 has no length");
  lua_pushinteger(L, t->shape[0]);
  return 1;
}

static int no_lt(lua_State *L) {
  return lac_error(L, lac_get(L), AC_UNSUPPORTED,
                   "< and > would give one boolean, not a tensor; use a:lt(b) or a:gt(b)");
}

static int no_le(lua_State *L) {
  return lac_error(L, lac_get(L), AC_UNSUPPORTED,
                   "<= and >= would give one boolean, not a tensor; use a:le(b) or a:ge(b)");
}

static int tensor_tostring(lua_State *L) {
  lac_state *S = lua_touserdata(L, LAC_STATE);
  const lac_box *b = lac_box_test(L, 1);
  if (b == NULL) return luaL_error(L, "tensor expected");
  if (b->t == NULL || S->ctx == NULL) {
    lac_site_push(L, b->t == NULL ? b->site : 0);
    if (lua_isstring(L, -1)) lua_pushfstring(L, "tensor(released at %s)", lua_tostring(L, -1));
    else lua_pushliteral(L, "tensor(released)");
    return 1;
  }
  char *text = ac_tensor_format(b->t);
  if (text == NULL) return lac_error(L, S, AC_OOM, "no memory to print a tensor");
  lua_pushstring(L, text);
  free(text);
  return 1;
}

static void open_operators(lua_State *L, lac_state *S) {
  static const char *const ops[][2] = {{"__add", "add"},
                                       {"__sub", "sub"},
                                       {"__mul", "mul"},
                                       {"__div", "div"},
                                       {"__pow", "pow"},
                                       {"__unm", "neg"},
                                       {"__mod", "remainder"},
                                       {"__idiv", "floor_divide"},
                                       {"__band", "bitwise_and"},
                                       {"__bor", "bitwise_or"},
                                       {"__bxor", "bitwise_xor"},
                                       {"__bnot", "bitwise_not"},
                                       {"__shl", "bitwise_left_shift"},
                                       {"__shr", "bitwise_right_shift"}};
  for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
    const ac_op *op = ac_op_find(S->ctx, ops[i][1]);
    if (op == NULL) continue;
    lac_push_op(L, S, op);
    lua_setfield(L, -2, ops[i][0]);
  }
}

/* -x and ~x: Lua passes the operand twice. The op takes one. Upvalue 3: the op's function. */
static int tensor_unary(lua_State *L) {
  lua_settop(L, 1);
  lua_pushvalue(L, lua_upvalueindex(3));
  lua_insert(L, 1);
  lua_call(L, 1, 1);
  return 1;
}

LAC_OPEN("accel", tensor) {
  static const luaL_Reg methods[] = {{"size", size},
                                     {"stride", stride},
                                     {"numel", numel},
                                     {"nelement", numel},
                                     {"dim", dim},
                                     {"element_size", element_size},
                                     {"storage_offset", storage_offset},
                                     {"data_ptr", data_ptr},
                                     {"is_contiguous", is_contiguous},
                                     {"is_floating_point", is_floating_point},
                                     {"is_complex", is_complex},
                                     {"release", release},
                                     {NULL, NULL}};
  static const luaL_Reg meta[] = {
      {"__close", release}, {"__len", tensor_len},           {"__lt", no_lt},
      {"__le", no_le},      {"__tostring", tensor_tostring}, {"__call", tensor_call},
      {NULL, NULL}};
  static const luaL_Reg funcs[] = {{"is_tensor", is_tensor}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lua_getfield(L, -1, "Tensor");
  lac_setfuncs(L, S, methods);
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
    lua_pushinteger(L, fields[i].id);
    lua_setfield(L, -2, fields[i].name);
  }
  for (int i = 0; i < N_VIEWS; i++) {
    lua_pushinteger(L, F_VIEWS + i);
    lua_setfield(L, -2, views[i].name);
  }
  const ac_op *windows = ac_op_find(S->ctx, "windows");
  if (windows != NULL) {
    lac_push_op(L, S, windows);
    lua_setfield(L, -2, "unfold");
  }
  lac_push_meta(L);
  lac_setfuncs(L, S, meta);
  open_operators(L, S);
  static const char *const unary[] = {"__unm", "__bnot"};
  for (size_t i = 0; i < sizeof unary / sizeof unary[0]; i++) {
    if (lua_getfield(L, -1, unary[i]) != LUA_TNIL) {
      lac_push_upvalues(L);
      lua_pushvalue(L, -3);
      lua_pushcclosure(L, tensor_unary, 3);
      lua_setfield(L, -3, unary[i]);
    }
    lua_pop(L, 1);
  }
  lac_push_upvalues(L);
  lua_pushvalue(L, -4);
  lua_pushcclosure(L, tensor_index, 3);
  lua_setfield(L, -2, "__index");
  lac_push_upvalues(L);
  lua_pushvalue(L, -4);
  lua_pushcclosure(L, tensor_newindex, 3);
  lua_setfield(L, -2, "__newindex");
  lua_pop(L, 2);
}
