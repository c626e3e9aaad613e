/* Sharded safetensors for Lua: accel.file.core.open_sharded, on which accel.open_sharded and
 * accel.load of a folder stand. */
#include <string.h>

#include "bindings/core/lac.h"
#include "bindings/core/op.h"
#include "file/sharded.h"

#define SHARDED "accel.ShardedFile"

typedef struct holder {
  aci_sharded *s;
} holder;

static int sharded_close(lua_State *L) {
  holder *h = luaL_checkudata(L, 1, SHARDED);
  aci_sharded *s = h->s;
  h->s = NULL;
  aci_sharded_close(s);
  return 0;
}

/* open_sharded(list of paths) -> files, or nil, message, code */
static int open_sharded(lua_State *L) {
  lac_state *S = lac_get(L);
  if (!lua_istable(L, 1))
    return lac_argerror(L, S, AC_INVALID, "open_sharded", 1, "paths",
                        "expected list of paths, got %s", luaL_typename(L, 1));
  const int n = (int)lua_rawlen(L, 1);
  lua_settop(L, 1);
  lua_createtable(L, n, 0); /* 2: keeps the strings */
  const char **paths = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof *paths, 0);
  for (int i = 0; i < n; i++) {
    if (lua_geti(L, 1, i + 1) != LUA_TSTRING)
      return lac_argerror(L, S, AC_INVALID, "open_sharded", 1, "paths",
                          "expected list of paths, found %s", luaL_typename(L, -1));
    paths[i] = lua_tostring(L, -1);
    lua_rawseti(L, 2, i + 1);
  }
  holder *h = lua_newuserdatauv(L, sizeof *h, 0);
  h->s = NULL;
  luaL_setmetatable(L, SHARDED);
  ac_err e;
  return aci_sharded_open(n, paths, &h->s, &e) == AC_OK ? 1 : lac_fail(L, &e);
}

static aci_sharded *check_self(lua_State *L, lac_state *S) {
  const holder *h = luaL_testudata(L, 1, SHARDED);
  if (h == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, 1, "self", "expected sharded file, got %s",
                 luaL_typename(L, 1));
  if (h->s == NULL) lac_error(L, S, AC_RELEASED, "the sharded file is closed");
  return h->s;
}

static const aci_sharded_tensor *check_name(lua_State *L, lac_state *S, const aci_sharded *s) {
  const char *name = lac_check_string(L, S, 2, "name", NULL);
  const aci_sharded_tensor *t = aci_sharded_find(s, name);
  if (t == NULL) lac_error(L, S, AC_NOT_FOUND, "the files have no tensor '%s'", name);
  return t;
}

static int keys(lua_State *L) {
  const aci_sharded *s = check_self(L, lac_get(L));
  const int n = aci_sharded_count(s);
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushstring(L, aci_sharded_at(s, i)->name);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

static void set_list(lua_State *L, int n, const int64_t *v, const char *field) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushinteger(L, v[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, field);
}

/* {dtype =, shape =, chunks = {{file = 1, offset = {0, 0}, shape =}, ...}}, without reading the
 * bytes */
static int info(lua_State *L) {
  lac_state *S = lac_get(L);
  const aci_sharded_tensor *t = check_name(L, S, check_self(L, S));
  lua_createtable(L, 0, 3);
  lua_pushstring(L, t->has_dtype ? ac_dtype_name(t->dtype) : t->dtype_name);
  lua_setfield(L, -2, "dtype");
  set_list(L, t->ndim, t->shape, "shape");
  lua_createtable(L, t->n_chunks, 0);
  for (int i = 0; i < t->n_chunks; i++) {
    lua_createtable(L, 0, 3);
    lua_pushinteger(L, t->chunk[i].file + 1);
    lua_setfield(L, -2, "file");
    set_list(L, t->ndim, t->chunk[i].offset, "offset");
    set_list(L, t->ndim, t->chunk[i].entry->shape, "shape");
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "chunks");
  return 1;
}

/* n integers from least on, taken from a list. */
static void check_list(lua_State *L, lac_state *S, int arg, const char *what, int n, int64_t least,
                       int64_t *out) {
  if (!lua_istable(L, arg) || (int)lua_rawlen(L, arg) != n)
    lac_argerror(L, S, AC_SHAPE, "get", arg, what, "expected list of %d integers, one a dim", n);
  for (int d = 0; d < n; d++) {
    int is = 0;
    lua_geti(L, arg, d + 1);
    out[d] = lua_tointegerx(L, -1, &is);
    if (!is || out[d] < least)
      lac_argerror(L, S, AC_INDEX, "get", arg, what, "%s in dim %d, integers from %d on are meant",
                   luaL_tolstring(L, -1, NULL), d + 1, (int)least);
    lua_pop(L, 1);
  }
}

/* files:get(name [, start, size]): the whole tensor, or the box of size elements from position
 * start (1-based) */
static int get(lua_State *L) {
  lac_state *S = lac_get(L);
  const aci_sharded_tensor *t = check_name(L, S, check_self(L, S));
  int64_t at[AC_MAX_DIMS] = {0}, size[AC_MAX_DIMS];
  if (!t->has_dtype)
    return lac_error(L, S, AC_UNSUPPORTED, "load: tensor '%s' is %s, which has no dtype here",
                     t->name, t->dtype_name);
  if (t->ndim > AC_MAX_DIMS)
    return lac_error(L, S, AC_UNSUPPORTED, "load: tensor '%s' has %d dims, more than %d", t->name,
                     t->ndim, AC_MAX_DIMS);
  for (int d = 0; d < t->ndim; d++) size[d] = t->shape[d];
  if (!lua_isnoneornil(L, 3)) {
    check_list(L, S, 3, "start", t->ndim, 1, at);
    check_list(L, S, 4, "size", t->ndim, 0, size);
    for (int d = 0; d < t->ndim; d++) {
      at[d]--;
      if (size[d] > t->shape[d] || at[d] > t->shape[d] - size[d])
        return lac_error(
            L, S, AC_INDEX, "get: %lld elements from %lld on in dim %d of '%s', which has %lld",
            (long long)size[d], (long long)at[d] + 1, d + 1, t->name, (long long)t->shape[d]);
    }
  }
  ac_device *d = ac_ctx_default_device(S->ctx), *cpu;
  lac_box *b = lac_box_push(L, S);
  aci_sharded *s = check_self(L, S); /* a finalizer may have closed it */
  ac_err e;
  ac_tensor *out = NULL;
  if (ac_ctx_device(S->ctx, "cpu", &cpu, &e) != AC_OK) return lac_raise(L, S, &e);
  ac_status st = ac_tensor_new_class(cpu, t->dtype, t->ndim, size, AC_MEM_PARAMETER, &out, &e);
  if (st == AC_OOM && lac_gc_oom(L, S)) {
    s = check_self(L, S);
    st = ac_tensor_new_class(cpu, t->dtype, t->ndim, size, AC_MEM_PARAMETER, &out, &e);
  }
  if (st != AC_OK) return lac_raise(L, S, &e);
  lac_box_fill(S, b, out);
  if (aci_sharded_read(s, t, at, size, out, &e) != AC_OK) return lac_fail(L, &e);
  if (d != cpu) {
    const ac_value v[3] = {{.kind = AC_T_TENSOR, .tensor = out},
                           {.kind = AC_T_DTYPE, .dtype = t->dtype},
                           {.kind = AC_T_DEVICE, .device = d}};
    lac_call_op(L, S, "to", v, 3, lac_box_push(L, S));
  }
  return 1;
}

LAC_OPEN("accel.file.core", sharded) {
  static const luaL_Reg funcs[] = {{"open_sharded", open_sharded}, {NULL, NULL}};
  static const luaL_Reg metas[] = {
      {"__gc", sharded_close}, {"__close", sharded_close}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"keys", keys}, {"info", info}, {"get", get}, {"close", sharded_close}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, SHARDED, metas, methods);
}
