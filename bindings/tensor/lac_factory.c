/* Making tensors: accel.tensor from Lua data, zeros ones full empty and their _like forms, arange
 * linspace eye. Shapes are a table or written out. The last argument may be {dtype=, device=,
 * requires_grad=}. Numbers without a dtype become i64 when all are integers, bool when all are
 * booleans, f32 otherwise. */
#include <math.h>
#include <string.h>

#include "accel/autograd.h"
#include "bindings/core/op.h"
#include "factory.h"
#include "tensor/convert.h"

/* ---- options of factories (factory.h) ---- */

static lac_opts open_options(lua_State *L, lac_state *S, int idx, ac_generator **g) {
  static const char *const plain[] = {"dtype", "device", "requires_grad", NULL};
  static const char *const drawn[] = {"dtype", "device", "requires_grad", "generator", NULL};
  return lac_opts_open(L, S, idx, g != NULL ? drawn : plain);
}

lac_spec lac_spec_read(lua_State *L, lac_state *S, int idx, ac_dtype dtype, ac_generator **g) {
  lac_opts o = open_options(L, S, idx, g);
  lac_spec s = {.dtype = dtype};
  s.dtype_given = lac_opt_dtype(&o, "dtype", &s.dtype);
  s.device = lac_opt_device(&o, "device", NULL);
  s.requires_grad = lac_opt_bool(&o, "requires_grad", false);
  if (g != NULL) *g = lac_opt_generator(&o, "generator");
  return s;
}

lac_spec lac_spec_like(lua_State *L, lac_state *S, const ac_tensor *t, int idx, ac_generator **g) {
  lac_opts o = open_options(L, S, idx, g);
  lac_spec s = {.dtype = (ac_dtype)t->dtype};
  lac_opt_dtype(&o, "dtype", &s.dtype);
  s.device = lac_opt_device(&o, "device", t->device);
  s.requires_grad = lac_opt_bool(&o, "requires_grad", false);
  if (g != NULL) *g = lac_opt_generator(&o, "generator");
  return s;
}

ac_tensor *lac_spec_new(lua_State *L, lac_state *S, const lac_spec *s, int ndim,
                        const int64_t *shape) {
  lac_gc_due(L, S);
  return lac_new_tensor(L, S, s->device, s->dtype, ndim, shape,
                        s->requires_grad ? AC_MEM_PARAMETER : AC_MEM_ACTIVATION);
}

ac_tensor *lac_spec_from_host(lua_State *L, lac_state *S, const lac_spec *s, int ndim,
                              const int64_t *shape, const void *data) {
  ac_err e;
  ac_tensor *t = NULL;
  lac_gc_due(L, S);
  lac_box *b = lac_box_push(L, S);
  ac_status st;
  LAC_RETRY(L, S, st, ac_tensor_from_host(s->device, s->dtype, ndim, shape, data, &t, &e));
  if (st != AC_OK) lac_raise(L, S, &e);
  lac_box_fill(S, b, t);
  lac_charge(S, t);
  return t;
}

int lac_spec_finish(lua_State *L, lac_state *S, const lac_spec *s) {
  ac_err e;
  if (s->requires_grad) {
    lac_box *b = lua_touserdata(L, -1);
    if (ac_tensor_set_requires_grad(b->t, true, &e) != AC_OK) return lac_raise(L, S, &e);
    lac_box_canonical(L, S, -1);
  }
  return 1;
}

static void fill(lua_State *L, lac_state *S, ac_tensor *t, ac_scalar value) {
  const ac_value v[2] = {{.kind = AC_T_TENSOR, .tensor = t},
                         {.kind = AC_T_SCALAR, .scalar = value}};
  lac_call_op(L, S, "fill_", v, 2, NULL);
}

/* Host scratch for n elements, on the Lua stack. */
static void *host_buffer(lua_State *L, lac_state *S, int64_t n, size_t element) {
  if (n > (int64_t)(PTRDIFF_MAX / 16))
    lac_error(L, S, AC_OOM, "%lld elements do not fit memory", (long long)n);
  return lua_newuserdatauv(L, (size_t)n * element + 1, 0);
}

/* ---- from nested tables ---- */

typedef struct nested {
  lua_State *L;
  lac_state *S;
  int ndim;
  int64_t shape[AC_MAX_DIMS], n;
  bool has_float, has_int, has_bool, has_complex;
  ac_dtype dtype;
  char *out;
  size_t bytes;
} nested;

static bool leaf(nested *p, ac_scalar *s) {
  if (lac_is_scalar(p->L, -1, s)) return true;
  lac_box *b = lac_box_test(p->L, -1);
  ac_err e;
  if (b == NULL || b->t == NULL || b->t->ndim != 0) return false;
  if (ac_tensor_item(b->t, 0, s, &e) != AC_OK) lac_raise(p->L, p->S, &e);
  return true;
}

/* {real =, imag =} on top, with either of the two. */
static bool is_complex(nested *p, double *re, double *im) {
  lua_State *L = p->L;
  double *const to[2] = {re, im};
  static const char *const name[2] = {"real", "imag"};
  bool any = false;
  if (!lua_istable(L, -1) || lua_rawlen(L, -1) > 0) return false;
  for (int i = 0; i < 2; i++) {
    lua_pushstring(L, name[i]);
    const int type = lua_rawget(L, -2);
    *to[i] = type == LUA_TNUMBER ? lua_tonumber(L, -1) : 0;
    any |= type != LUA_TNIL;
    if (type != LUA_TNIL && type != LUA_TNUMBER)
      lac_error(L, p->S, AC_INVALID, "tensor: element %lld: %s is a %s; expected a number",
                (long long)p->n + 1, name[i], luaL_typename(L, -1));
    lua_pop(L, 1);
  }
  return any;
}

/* The first element of every level gives the shape. Differences are reported when the values are
 * read. */
static void measure(nested *p) {
  int top = lua_gettop(p->L);
  double re, im;
  while (lua_istable(p->L, -1) && !is_complex(p, &re, &im)) {
    if (p->ndim == AC_MAX_DIMS)
      lac_error(p->L, p->S, AC_SHAPE, "tensor: %d dims at most", AC_MAX_DIMS);
    p->shape[p->ndim++] = (int64_t)lua_rawlen(p->L, -1);
    luaL_checkstack(p->L, 4, "tensor");
    lua_rawgeti(p->L, -1, 1);
  }
  lua_settop(p->L, top);
}

static void store_complex(const nested *p, double re, double im) {
  char *at = p->out + (size_t)p->n * p->bytes;
  if (!ac_dtype_is_complex(p->dtype))
    lac_error(p->L, p->S, AC_DTYPE,
              "tensor: element %lld is complex, dtype is %s; expected c64 or c128",
              (long long)p->n + 1, ac_dtype_name(p->dtype));
  aci_item_store_f64(p->dtype, at, re);
  aci_item_store_f64(p->dtype == AC_C128 ? AC_F64 : AC_F32, at + p->bytes / 2, im);
}

/* Raises for the list on top if it has options or fields, which would be lost. */
static void refuse_fields(const nested *p, int64_t n, int depth) {
  static const char *const options[] = {"dtype", "device", "requires_grad"};
  lua_State *L = p->L;
  for (int i = 0; depth == 0 && i < 3; i++) {
    lua_pushstring(L, options[i]);
    if (lua_rawget(L, -2) != LUA_TNIL)
      lac_error(L, p->S, AC_INVALID, "tensor: '%s' is in the list; give options in a second table",
                options[i]);
    lua_pop(L, 1);
  }
  if (n > 0) return;
  lua_pushnil(L);
  if (lua_next(L, -2) == 0) return;
  lua_pop(L, 1);
  lac_error(L, p->S, AC_INVALID,
            "tensor: expected a list, got a table with the key '%s'; a complex number is "
            "{ real =, imag = }",
            lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : luaL_typename(L, -1));
}

/* Visits the value on top. With out NULL only kinds and lengths are checked. */
static void visit(nested *p, int depth) {
  lua_State *L = p->L;
  char buf[96];
  if (depth == p->ndim) {
    ac_scalar s;
    double re, im;
    if (is_complex(p, &re, &im)) {
      p->has_complex = true;
      if (p->out != NULL) store_complex(p, re, im);
      p->n++;
      return;
    }
    if (!leaf(p, &s))
      lac_error(L, p->S, AC_INVALID, "tensor: element %lld: expected number or boolean, got %s",
                (long long)p->n + 1, lac_typename(L, -1, buf, sizeof buf));
    p->has_float |= s.kind == AC_SCALAR_FLOAT;
    p->has_int |= s.kind == AC_SCALAR_INT;
    p->has_bool |= s.kind == AC_SCALAR_BOOL;
    if (p->out != NULL) aci_item_store(p->dtype, p->out + (size_t)p->n * p->bytes, s);
    p->n++;
    return;
  }
  if (!lua_istable(L, -1))
    lac_error(L, p->S, AC_SHAPE, "tensor: ragged: expected a table of %lld at depth %d, got %s",
              (long long)p->shape[depth], depth + 1, lac_typename(L, -1, buf, sizeof buf));
  int64_t n = (int64_t)lua_rawlen(L, -1);
  refuse_fields(p, n, depth);
  if (n != p->shape[depth])
    lac_error(L, p->S, AC_SHAPE, "tensor: ragged: tables of %lld and %lld elements at depth %d",
              (long long)n, (long long)p->shape[depth], depth + 1);
  for (int64_t i = 1; i <= n; i++) {
    lua_rawgeti(L, -1, i);
    visit(p, depth + 1);
    lua_pop(L, 1);
  }
}

static int tensor(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 2);
  lac_spec s = lac_spec_read(L, S, 2, AC_F32, NULL);
  if (lac_box_test(L, 1) != NULL) { /* a copy without history */
    ac_tensor *t = lac_check_tensor(L, S, 1, "data");
    lac_spec c = lac_spec_like(L, S, t, 2, NULL);
    int64_t shape[AC_MAX_DIMS];
    int ndim = lac_shape_of(t, shape);
    ac_tensor *out = lac_spec_new(L, S, &c, ndim, shape);
    t = lac_check_tensor(L, S, 1, "data"); /* the collector may have run finalizers */
    bool grad = ac_ctx_set_grad_enabled(S->ctx, false);
    const ac_value v[2] = {{.kind = AC_T_TENSOR, .tensor = out},
                           {.kind = AC_T_TENSOR, .tensor = t}};
    ac_value r[AC_MAX_RESULTS];
    ac_err e;
    int n = 0;
    ac_status st = lac_call(L, S, ac_op_find(S->ctx, "copy_"), v, r, &n, &e);
    ac_ctx_set_grad_enabled(S->ctx, grad);
    if (st != AC_OK) return lac_raise(L, S, &e);
    for (int i = 0; i < n; i++) ac_tensor_release(r[i].tensor);
    return lac_spec_finish(L, S, &c);
  }
  nested p = {.L = L, .S = S};
  lua_pushvalue(L, 1);
  if (!lua_istable(L, 1) && lua_type(L, 1) != LUA_TNUMBER && !lua_isboolean(L, 1)) {
    char buf[96];
    return lac_argerror(L, S, AC_INVALID, "tensor", 1, "data",
                        "expected table, number or boolean, got %s",
                        lac_typename(L, 1, buf, sizeof buf));
  }
  measure(&p);
  visit(&p, 0);
  if (!s.dtype_given)
    s.dtype = p.has_complex             ? AC_C64
              : p.has_float || p.n == 0 ? AC_F32
              : p.has_int               ? AC_I64
                                        : AC_BOOL;
  p.dtype = s.dtype;
  p.bytes = ac_dtype_bytes(s.dtype);
  p.out = host_buffer(L, S, p.n, p.bytes);
  p.n = 0;
  lua_pushvalue(L, 1);
  visit(&p, 0);
  lac_spec_from_host(L, S, &s, p.ndim, p.shape, p.out);
  return lac_spec_finish(L, S, &s);
}

/* ---- constant ---- */

static ac_scalar number(double f) { return (ac_scalar){.kind = AC_SCALAR_FLOAT, .f = f}; }

static int constant(lua_State *L, double value, bool filled) {
  lac_state *S = lac_get(L);
  int64_t shape[AC_MAX_DIMS];
  int next, n = lac_check_shape(L, S, 1, lua_gettop(L), "shape", shape, &next);
  lac_spec s = lac_spec_read(L, S, next, AC_F32, NULL);
  ac_tensor *t = lac_spec_new(L, S, &s, n, shape);
  if (filled) fill(L, S, t, number(value));
  return lac_spec_finish(L, S, &s);
}

static int zeros(lua_State *L) { return constant(L, 0, true); }
static int ones(lua_State *L) { return constant(L, 1, true); }
static int empty(lua_State *L) { return constant(L, 0, false); }

static int constant_like(lua_State *L, double value, bool filled) {
  lac_state *S = lac_get(L);
  const ac_tensor *x = lac_check_tensor(L, S, 1, "x");
  lac_spec s = lac_spec_like(L, S, x, 2, NULL);
  int64_t shape[AC_MAX_DIMS];
  int n = lac_shape_of(x, shape);
  ac_tensor *t = lac_spec_new(L, S, &s, n, shape);
  if (filled) fill(L, S, t, number(value));
  return lac_spec_finish(L, S, &s);
}

static int zeros_like(lua_State *L) { return constant_like(L, 0, true); }
static int ones_like(lua_State *L) { return constant_like(L, 1, true); }
static int empty_like(lua_State *L) { return constant_like(L, 0, false); }

static ac_scalar check_scalar(lua_State *L, lac_state *S, int idx, const char *name) {
  ac_scalar v;
  char buf[96];
  if (!lac_is_scalar(L, idx, &v))
    lac_argerror(L, S, AC_INVALID, NULL, idx, name, "expected number or boolean, got %s",
                 lac_typename(L, idx, buf, sizeof buf));
  return v;
}

static ac_dtype dtype_of(ac_scalar s) {
  return s.kind == AC_SCALAR_FLOAT ? AC_F32 : s.kind == AC_SCALAR_INT ? AC_I64 : AC_BOOL;
}

static int full(lua_State *L) {
  lac_state *S = lac_get(L);
  int64_t shape[AC_MAX_DIMS];
  int next, n = lac_check_shape(L, S, 1, 1, "shape", shape, &next);
  ac_scalar v = check_scalar(L, S, 2, "value");
  lac_spec s = lac_spec_read(L, S, 3, dtype_of(v), NULL);
  fill(L, S, lac_spec_new(L, S, &s, n, shape), v);
  return lac_spec_finish(L, S, &s);
}

static int full_like(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_tensor *x = lac_check_tensor(L, S, 1, "x");
  ac_scalar v = check_scalar(L, S, 2, "value");
  lac_spec s = lac_spec_like(L, S, x, 3, NULL);
  int64_t shape[AC_MAX_DIMS];
  int n = lac_shape_of(x, shape);
  fill(L, S, lac_spec_new(L, S, &s, n, shape), v);
  return lac_spec_finish(L, S, &s);
}

/* ---- x:new_zeros(shape) and its kin: any shape, dtype and device as x unless given ---- */

static int new_constant(lua_State *L, double value, bool filled) {
  lac_state *S = lac_get(L);
  int64_t shape[AC_MAX_DIMS];
  const ac_tensor *x = lac_check_tensor(L, S, 1, "x");
  int next, n = lac_check_shape(L, S, 2, lua_gettop(L), "shape", shape, &next);
  lac_spec s = lac_spec_like(L, S, x, next, NULL);
  ac_tensor *t = lac_spec_new(L, S, &s, n, shape);
  if (filled) fill(L, S, t, number(value));
  return lac_spec_finish(L, S, &s);
}

static int new_zeros(lua_State *L) { return new_constant(L, 0, true); }
static int new_ones(lua_State *L) { return new_constant(L, 1, true); }
static int new_empty(lua_State *L) { return new_constant(L, 0, false); }

static int new_full(lua_State *L) {
  lac_state *S = lac_get(L);
  int64_t shape[AC_MAX_DIMS];
  const ac_tensor *x = lac_check_tensor(L, S, 1, "x");
  int next, n = lac_check_shape(L, S, 2, 2, "shape", shape, &next);
  ac_scalar v = check_scalar(L, S, 3, "value");
  lac_spec s = lac_spec_like(L, S, x, 4, NULL);
  fill(L, S, lac_spec_new(L, S, &s, n, shape), v);
  return lac_spec_finish(L, S, &s);
}

/* x:new_tensor(data, options): accel.tensor with x's dtype and device as defaults. */
static int new_tensor(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 3);
  const ac_tensor *x = lac_check_tensor(L, S, 1, "x");
  lac_spec_like(L, S, x, 3, NULL); /* refuses unknown options */
  lua_createtable(L, 0, 3);
  lua_pushstring(L, ac_dtype_name((ac_dtype)x->dtype));
  lua_setfield(L, 4, "dtype");
  lua_pushstring(L, ac_device_name(x->device));
  lua_setfield(L, 4, "device");
  if (lua_istable(L, 3))
    for (lua_pushnil(L); lua_next(L, 3);) {
      lua_pushvalue(L, -2);
      lua_insert(L, -2);
      lua_settable(L, 4);
    }
  lua_replace(L, 3);
  lua_remove(L, 1);
  return tensor(L);
}

/* ---- sequences ---- */

static int sequence(lua_State *L, lac_state *S, const lac_spec *s, int64_t n, const ac_scalar *at,
                    ac_scalar (*value)(const ac_scalar *, int64_t)) {
  size_t bytes = ac_dtype_bytes(s->dtype);
  char *p = host_buffer(L, S, n, bytes);
  for (int64_t i = 0; i < n; i++) aci_item_store(s->dtype, p + (size_t)i * bytes, value(at, i));
  lac_spec_from_host(L, S, s, 1, &n, p);
  return lac_spec_finish(L, S, s);
}

static ac_scalar range_value(const ac_scalar *at, int64_t i) {
  if (at[0].kind == AC_SCALAR_INT)
    return (ac_scalar){.kind = AC_SCALAR_INT, .i = at[0].i + i * at[1].i};
  return number(at[0].f + (double)i * at[1].f);
}

/* accel.arange([start = 0,] stop [, step = 1]): start, start + step, ... before stop */
static int arange(lua_State *L) {
  lac_state *S = lac_get(L);
  int n = lua_gettop(L);
  if (n > 0 && lua_istable(L, n)) n--;
  if (n < 1 || n > 3)
    return lac_argerror(L, S, AC_INVALID, NULL, n + 1, "stop", "expected 1 to 3 numbers, got %d",
                        n);
  bool integers = true;
  double v[3];
  for (int i = 0; i < n; i++) {
    v[i] = lac_check_number(L, S, i + 1,
                            n == 1   ? "stop"
                            : i == 0 ? "start"
                            : i == 1 ? "stop"
                                     : "step");
    integers = integers && lua_isinteger(L, i + 1);
  }
  double start = n == 1 ? 0 : v[0], stop = n == 1 ? v[0] : v[1], step = n == 3 ? v[2] : 1;
  if (step == 0 || !isfinite(start) || !isfinite(stop) || !isfinite(step))
    return lac_error(L, S, AC_INVALID, "arange: start, stop and step must be finite, step not 0");
  lac_spec s = lac_spec_read(L, S, n + 1, integers ? AC_I64 : AC_F32, NULL);
  double count = ceil((stop - start) / step);
  if (count > 1e15)
    return lac_error(L, S, AC_OOM, "arange: %.0f elements do not fit memory", count);
  ac_scalar at[2] = {number(start), number(step)};
  if (integers) {
    at[0] = (ac_scalar){.kind = AC_SCALAR_INT, .i = n == 1 ? 0 : lua_tointeger(L, 1)};
    at[1] = (ac_scalar){.kind = AC_SCALAR_INT, .i = n == 3 ? lua_tointeger(L, 3) : 1};
  }
  return sequence(L, S, &s, count > 0 ? (int64_t)count : 0, at, range_value);
}

static ac_scalar line_value(const ac_scalar *at, int64_t i) {
  int64_t n = at[2].i;
  if (n == 1) return at[0];
  double step = (at[1].f - at[0].f) / (double)(n - 1);
  /* from both ends, so that both are exact */
  return number(i < n / 2 ? at[0].f + step * (double)i : at[1].f - step * (double)(n - 1 - i));
}

static int linspace(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_scalar at[3] = {number(lac_check_number(L, S, 1, "start")),
                     number(lac_check_number(L, S, 2, "stop")),
                     {.kind = AC_SCALAR_INT, .i = lac_check_int(L, S, 3, "steps")}};
  if (at[2].i < 0)
    return lac_argerror(L, S, AC_INVALID, NULL, 3, "steps", "must not be negative, got %lld",
                        (long long)at[2].i);
  lac_spec s = lac_spec_read(L, S, 4, AC_F32, NULL);
  return sequence(L, S, &s, at[2].i, at, line_value);
}

static int eye(lua_State *L) {
  lac_state *S = lac_get(L);
  int64_t shape[2] = {lac_check_int(L, S, 1, "n"), 0};
  int next = 2;
  shape[1] = lua_type(L, 2) == LUA_TNUMBER ? lac_check_int(L, S, next++, "m") : shape[0];
  for (int i = 0; i < 2; i++)
    if (shape[i] < 0)
      return lac_argerror(L, S, AC_SHAPE, NULL, i + 1, i ? "m" : "n",
                          "must not be negative, got %lld", (long long)shape[i]);
  lac_spec s = lac_spec_read(L, S, next, AC_F32, NULL);
  lac_check_last(L, S, next);
  size_t bytes = ac_dtype_bytes(s.dtype);
  if (shape[1] != 0 && shape[0] > INT64_MAX / 16 / shape[1])
    return lac_error(L, S, AC_OOM, "eye: does not fit memory");
  char *p = host_buffer(L, S, shape[0] * shape[1], bytes);
  memset(p, 0, (size_t)(shape[0] * shape[1]) * bytes);
  for (int64_t i = 0; i < shape[0] && i < shape[1]; i++)
    aci_item_store(s.dtype, p + (size_t)(i * shape[1] + i) * bytes, number(1));
  lac_spec_from_host(L, S, &s, 2, shape, p);
  return lac_spec_finish(L, S, &s);
}

LAC_OPEN("accel", factory) {
  static const luaL_Reg funcs[] = {{"tensor", tensor},
                                   {"zeros", zeros},
                                   {"ones", ones},
                                   {"empty", empty},
                                   {"full", full},
                                   {"zeros_like", zeros_like},
                                   {"ones_like", ones_like},
                                   {"empty_like", empty_like},
                                   {"full_like", full_like},
                                   {"arange", arange},
                                   {"linspace", linspace},
                                   {"eye", eye},
                                   {NULL, NULL}};
  static const luaL_Reg methods[] = {{"new_zeros", new_zeros},   {"new_ones", new_ones},
                                     {"new_empty", new_empty},   {"new_full", new_full},
                                     {"new_tensor", new_tensor}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lua_getfield(L, -1, "Tensor");
  lac_setfuncs(L, S, methods);
  lua_pop(L, 1);
}
