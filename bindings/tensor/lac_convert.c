/* Tensors turned into plain Lua data (item, tolist) and into other dtypes and devices (to, float,
 * cpu, ...). */
#include "bindings/core/lac.h"
#include "bindings/core/op.h"
#include "device/meta/meta_flags.h"
#include "ops/core/ctx_impl.h"
#include "bindings/ops/placeholders.h"
#include "tensor/convert.h"
#include "tensor/host_read.h"

/* In a dry run tensors on meta stand for a rank's own: a value that is read is zero. Tensors that a
 * real run moves to the CPU stay, or are on ACI_META_HOST where meta stands for an accelerator. The
 * registry holds the callbacks for reads and for files. */
static const char key_reads, key_save;

bool lac_placeholders(lua_State *L) {
  const bool on = lua_rawgetp(L, LUA_REGISTRYINDEX, &key_reads) != LUA_TNIL;
  lua_pop(L, 1);
  return on;
}

int lac_placeholders_save(lua_State *L, int path, int tensors) {
  const int n = lua_gettop(L);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &key_save);
  lua_pushvalue(L, path);
  lua_pushvalue(L, tensors);
  lua_call(L, 2, LUA_MULTRET);
  return lua_gettop(L) - n;
}

static bool stands_in(lua_State *L, const ac_tensor *t) {
  return t->device->kind == AC_DEV_META && lac_placeholders(L);
}

static void tell(lua_State *L, const char *what) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &key_reads);
  lua_pushstring(L, what);
  lua_call(L, 1, 0);
}

static ac_tensor *self_of(lua_State *L, lac_state *S) { return lac_check_tensor(L, S, 1, "self"); }

/* ---- plain data ---- */

static void push_scalar(lua_State *L, ac_scalar s) {
  if (s.kind == AC_SCALAR_FLOAT) lua_pushnumber(L, s.f);
  else if (s.kind == AC_SCALAR_BOOL) lua_pushboolean(L, s.i != 0);
  else lua_pushinteger(L, s.i);
}

/* A complex number is the table {real =, imag =}. */
static void push_complex(lua_State *L, double re, double im) {
  lua_createtable(L, 0, 2);
  lua_pushnumber(L, re);
  lua_setfield(L, -2, "real");
  lua_pushnumber(L, im);
  lua_setfield(L, -2, "imag");
}

static void push_element(lua_State *L, ac_dtype d, const void *p) {
  if (ac_dtype_is_complex(d)) {
    const ac_dtype part = d == AC_C128 ? AC_F64 : AC_F32;
    push_complex(L, aci_item_load_f64(part, p),
                 aci_item_load_f64(part, (const char *)p + ac_dtype_bytes(part)));
  } else {
    push_scalar(L, aci_item_load(d, p));
  }
}

/* The value of a complex tensor of one element. */
static int complex_item(lua_State *L, lac_state *S, const ac_tensor *t) {
  ac_scalar s[2];
  ac_err e;
  for (int i = 0; i < 2; i++) {
    ac_tensor *part = aci_tensor_part(t, i);
    ac_status st = part == NULL ? AC_FAIL(&e, OOM, "no memory for a tensor's head")
                                : ac_tensor_item(part, 0, &s[i], &e);
    ac_tensor_release(part);
    if (st != AC_OK) return lac_raise(L, S, &e);
  }
  push_complex(L, s[0].f, s[1].f);
  return 1;
}

static int item(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_tensor *t = self_of(L, S);
  ac_scalar s;
  ac_err e;
  char shape[160];
  if (t->numel != 1)
    return lac_error(L, S, AC_SHAPE, "item: needs a tensor of one element, got shape %s",
                     aci_shape_str(t->ndim, t->shape, shape, sizeof shape));
  if (stands_in(L, t)) {
    const ac_dtype d = (ac_dtype)t->dtype;
    tell(L, "item()");
    push_element(L, d, (const uint64_t[2]){0});
    return 1;
  }
  if (aci_is_complex(t)) return complex_item(L, S, t);
  if (ac_tensor_item(t, 0, &s, &e) != AC_OK) return lac_raise(L, S, &e);
  push_scalar(L, s);
  return 1;
}

static void push_nested(lua_State *L, const ac_tensor *t, const char *p, int dim) {
  size_t bytes = aci_dsize((ac_dtype)t->dtype);
  if (dim == t->ndim) {
    push_element(L, (ac_dtype)t->dtype, p);
    return;
  }
  lua_createtable(L, t->shape[dim] < INT32_MAX ? (int)t->shape[dim] : 0, 0);
  for (int64_t i = 0; i < t->shape[dim]; i++) {
    push_nested(L, t, p + i * t->stride[dim] * (int64_t)bytes, dim + 1);
    lua_rawseti(L, -2, i + 1);
  }
}

static void push_zeros(lua_State *L, ac_dtype d, int ndim, const int64_t *shape) {
  if (ndim == 0) {
    push_element(L, d, (const uint64_t[2]){0});
    return;
  }
  lua_createtable(L, *shape < INT32_MAX ? (int)*shape : 0, 0);
  for (int64_t i = 0; i < *shape; i++) {
    push_zeros(L, d, ndim - 1, shape + 1);
    lua_rawseti(L, -2, i + 1);
  }
}

/* Holds the tensor that tolist reads: making tables may run the collector, whose finalizers may
 * release the tensor, and memory may run out. */
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
  if (stands_in(L, t)) {
    tell(L, "tolist()");
    push_zeros(L, (ac_dtype)t->dtype, t->ndim, t->shape);
    return 1;
  }
  if (aci_host_read_open(t, true, &d->r, &e) != AC_OK) return lac_raise(L, S, &e);
  d->open = true;
  push_nested(L, t, d->r.base + t->offset * (int64_t)aci_dsize((ac_dtype)t->dtype), 0);
  return 1;
}

/* ---- to ---- */

/* Pushes the tensor at 1 in another dtype or on another device: itself when nothing changes and no
 * copy was asked for. */
static void convert(lua_State *L, lac_state *S, ac_dtype dt, ac_device *d, bool copy) {
  lac_box *b = lac_box_push(L, S);
  ac_tensor *t = self_of(L, S);
  if (d != t->device && d->kind == AC_DEV_CPU && stands_in(L, t)) {
    const int64_t *flags = S->ctx->flags[AC_DEV_META];
    ac_err e;
    /* no pool of the device is asked for it */
    if (flags == NULL || !flags[ACI_META_ACCELERATOR]) d = t->device;
    else if (aci_ctx_phantom(S->ctx, ACI_META_HOST, &d, &e) != AC_OK) lac_raise(L, S, &e);
  }
  bool same = dt == (ac_dtype)t->dtype && d == t->device;
  if (aci_is_complex(t) && !ac_dtype_is_complex(dt) && dt != AC_BOOL) {
    lua_warning(L, "to: the imaginary parts are dropped; use x:real() if that is meant", 0);
    t = self_of(L, S);
  }
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
        return lac_argerror(L, S, AC_INVALID, NULL, i, "target",
                            "'%s' is neither a dtype nor a device: %s", lua_tostring(L, i), e.msg);
    } else if (!lua_isnil(L, i)) {
      return lac_argerror(L, S, AC_INVALID, NULL, i, "target",
                          "expected dtype, device or tensor, got %s", luaL_typename(L, i));
    }
  }
  lac_opt_dtype(&o, "dtype", &dt);
  d = lac_opt_device(&o, "device", d);
  convert(L, S, dt, d, lac_opt_bool(&o, "copy", false));
  return 1;
}

/* x:float() and similar methods. Upvalue 3 is the dtype. */
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

/* core.placeholders(read, save): from now on tensors on meta stand for a rank's own. read(what) is
 * called for reads of their values. save(path, tensors) replaces accel.save once its arguments are
 * checked. */
static int placeholders(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_settop(L, 2);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &key_save);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &key_reads);
  return 0;
}

LAC_OPEN("accel.profiler.core", placeholders) {
  static const luaL_Reg funcs[] = {{"placeholders", placeholders}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}

LAC_OPEN("accel", convert) {
  static const luaL_Reg plain[] = {
      {"item", item}, {"tolist", tolist}, {"to", to}, {"cpu", to_cpu}, {NULL, NULL}};
  static const struct {
    const char *name;
    ac_dtype d;
  } list[] = {{"float", AC_F32},     {"double", AC_F64}, {"half", AC_F16},
              {"bfloat16", AC_BF16}, {"long", AC_I64},   {"int", AC_I32},
              {"bool", AC_BOOL},     {"cfloat", AC_C64}, {"cdouble", AC_C128}};
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
