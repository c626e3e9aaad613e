/* Tensors turned into plain Lua data (item, tolist) and into other dtypes and devices (to, float, cpu, ...). */
#include "core/lac.h"
#include "core/op.h"
#include "tensor/convert.h"
#include "tensor/host_read.h"

static ac_tensor *self_of(lua_State *L, lac_state *S) { return lac_check_tensor(L, S, 1, "self"); }

/* ---- plain data ---- */

static void push_scalar(lua_State *L, ac_scalar s) {
  if (s.kind == AC_SCALAR_FLOAT) lua_pushnumber(L, s.f);
  else if (s.kind == AC_SCALAR_BOOL) lua_pushboolean(L, s.i != 0);
  else lua_pushinteger(L, s.i);
}

static int item(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_tensor *t = self_of(L, S);
  ac_scalar s;
  ac_err e;
  char shape[160];
  if (t->numel != 1)
    return lac_error(L, S, AC_SHAPE, "item: a tensor of one element has one, this one has shape %s",
                     aci_shape_str(t->ndim, t->shape, shape, sizeof shape));
  if (ac_tensor_item(t, 0, &s, &e) != AC_OK) return lac_raise(L, S, &e);
  push_scalar(L, s);
  return 1;
}

static void push_nested(lua_State *L, const ac_tensor *t, const char *p, int dim) {
  size_t bytes = aci_dsize((ac_dtype)t->dtype);
  if (dim == t->ndim) {
    push_scalar(L, aci_item_load((ac_dtype)t->dtype, p));
    return;
  }
  lua_createtable(L, t->shape[dim] < INT32_MAX ? (int)t->shape[dim] : 0, 0);
  for (int64_t i = 0; i < t->shape[dim]; i++) {
    push_nested(L, t, p + i * t->stride[dim] * (int64_t)bytes, dim + 1);
    lua_rawseti(L, -2, i + 1);
  }
}

/* Holds what tolist reads: making tables may run the collector, whose finalizers may release the tensor, and
 * memory may run out. */
typedef struct reading {
  ac_tensor *t;
  bool open;
  aci_host_read r;
} reading;

static int reading_close(lua_State *L) {
  reading *d = lua_touserdata(L, 1);
  if (d->open) aci_host_read_close(&d->r);
  d->open = false;
  ac_tensor_release(d->t);
  d->t = NULL;
  return 0;
}

static int tolist(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  reading *d = lua_newuserdatauv(L, sizeof *d, 0);
  *d = (reading){0};
  lua_createtable(L, 0, 2);
  lua_pushcfunction(L, reading_close);
  lua_pushvalue(L, -1);
  lua_setfield(L, -3, "__gc");
  lua_setfield(L, -2, "__close");
  lua_setmetatable(L, -2);
  lua_toclose(L, -1);
  ac_tensor *t = self_of(L, S);
  ac_tensor_retain(t);
  d->t = t;
  luaL_checkstack(L, t->ndim + 8, "tolist");
  if (aci_host_read_open(t, true, &d->r, &e) != AC_OK) return lac_raise(L, S, &e);
  d->open = true;
  push_nested(L, t, d->r.base + t->offset * (int64_t)aci_dsize((ac_dtype)t->dtype), 0);
  return 1;
}

/* ---- to ---- */

/* Pushes the tensor at 1 in another dtype or on another device: itself when nothing changes and no copy was
 * asked for. */
static void convert(lua_State *L, lac_state *S, ac_dtype dt, ac_device *d, bool copy) {
  lac_box *b = lac_box_push(L, S);
  ac_tensor *t = self_of(L, S);
  bool same = dt == (ac_dtype)t->dtype && d == t->device;
  const ac_value v[3] = {{.kind = AC_T_TENSOR, .tensor = t},
                         {.kind = AC_T_DTYPE, .dtype = dt},
                         {.kind = AC_T_DEVICE, .device = d}};
  if (!same) lac_call_op(L, S, "to", v, 3, b);
  else if (copy) lac_call_op(L, S, "clone", v, 1, b);
  else lua_pushvalue(L, 1);
}

/* t:to(dtype | device | tensor, ..., {dtype=, device=, copy=}) */
static int to(lua_State *L) {
  static const char *const names[] = {"dtype", "device", "copy", NULL};
  lac_state *S = lac_get(L);
  ac_tensor *t = self_of(L, S);
  ac_dtype dt = (ac_dtype)t->dtype;
  ac_device *d = t->device;
  int n = lua_gettop(L);
  lac_opts o = lac_opts_open(L, S, lua_istable(L, n) ? n-- : n + 1, names);
  for (int i = 2; i <= n; i++) {
    if (lac_box_test(L, i) != NULL) {
      const ac_tensor *like = lac_check_tensor(L, S, i, "other");
      dt = (ac_dtype)like->dtype;
      d = like->device;
    } else if (lua_type(L, i) == LUA_TSTRING) {
      ac_err e;
      if (!ac_dtype_find(lua_tostring(L, i), &dt) &&
          ac_ctx_device(S->ctx, lua_tostring(L, i), &d, &e) != AC_OK)
        return lac_argerror(L, S, AC_INVALID, NULL, i, "target", "'%s' is neither a dtype nor a device: %s",
                            lua_tostring(L, i), e.msg);
    } else if (!lua_isnil(L, i)) {
      return lac_argerror(L, S, AC_INVALID, NULL, i, "target", "expected dtype, device or tensor, got %s",
                          luaL_typename(L, i));
    }
  }
  lac_opt_dtype(&o, "dtype", &dt);
  d = lac_opt_device(&o, "device", d);
  convert(L, S, dt, d, lac_opt_bool(&o, "copy", false));
  return 1;
}

/* x:float() and its like; upvalue 3 is the dtype. */
static int to_dtype(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_tensor *t = self_of(L, S);
  convert(L, S, (ac_dtype)lua_tointeger(L, lua_upvalueindex(3)), t->device, false);
  return 1;
}

static int to_cpu(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_tensor *t = self_of(L, S);
  ac_device *cpu;
  ac_err e;
  if (ac_ctx_device(S->ctx, "cpu", &cpu, &e) != AC_OK) return lac_raise(L, S, &e);
  convert(L, S, (ac_dtype)t->dtype, cpu, false);
  return 1;
}

LAC_OPEN("accel", convert) {
  static const luaL_Reg plain[] = {
      {"item", item}, {"tolist", tolist}, {"to", to}, {"cpu", to_cpu}, {NULL, NULL}};
  static const struct {
    const char *name;
    ac_dtype d;
  } list[] = {{"float", AC_F32}, {"double", AC_F64}, {"half", AC_F16}, {"bfloat16", AC_BF16},
              {"long", AC_I64},  {"int", AC_I32},    {"bool", AC_BOOL}};
  lua_getfield(L, -1, "Tensor");
  lac_setfuncs(L, S, plain);
  for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
    lac_push_upvalues(L);
    lua_pushinteger(L, list[i].d);
    lua_pushcclosure(L, to_dtype, 3);
    lua_setfield(L, -2, list[i].name);
  }
  lua_getfield(L, -1, "to"); /* after the ops: it takes more here than the op does */
  lua_setfield(L, -3, "to");
  lua_pop(L, 1);
}
