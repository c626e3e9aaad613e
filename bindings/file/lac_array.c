/* Arrays of files for Lua, in accel.file.core: read_array, inflate, deflate. Called by accel.data.numpy
 * and accel.data.IDX. Files that cannot be read return nil, message, code. */
#include <stdlib.h>

#include "bindings/core/lac.h"
#include "bindings/core/op.h"
#include "file/array.h"

#define BYTES "accel.file.bytes"

/* Freed by its finalizer where pushing the string raises. */
static void **new_bytes(lua_State *L) {
  void **p = lua_newuserdatauv(L, sizeof *p, 0);
  *p = NULL;
  luaL_setmetatable(L, BYTES);
  return p;
}

static int bytes_gc(lua_State *L) {
  void **p = luaL_checkudata(L, 1, BYTES);
  free(*p);
  *p = NULL;
  return 0;
}

/* read_array(path, at, dtype, shape [, {swap = 0, map = false}]) -> tensor, or nil, message, code */
static int read_array(lua_State *L) {
  static const char *const names[] = {"swap", "map", NULL};
  lac_state *S = lac_get(L);
  const char *path = lac_check_path(L, S, 1, "path", NULL);
  const int64_t at = lac_check_int(L, S, 2, "at");
  const lac_opts o = lac_opts_open(L, S, 5, names);
  const int64_t swap = lac_opt_int(&o, "swap", 0);
  aci_array a = {.map = lac_opt_bool(&o, "map", false), .swap = (int)swap};
  a.dtype = lac_check_dtype(L, S, 3, "dtype");
  int next;
  a.ndim = lac_check_shape(L, S, 4, 4, "shape", a.shape, &next);
  if (at < 0 || swap < 0 || swap > 8)
    return lac_argerror(L, S, AC_INVALID, NULL, at < 0 ? 2 : 5, "at", "out of range");
  a.at = (uint64_t)at;
  ac_device *cpu;
  ac_tensor *out = NULL;
  ac_err e;
  lac_box *b = lac_box_push(L, S);
  ac_status st = ac_ctx_device(S->ctx, "cpu", &cpu, &e);
  if (st == AC_OK) st = aci_array_read(cpu, path, &a, &out, &e);
  if (st == AC_OOM || st == AC_SHAPE) return lac_raise(L, S, &e);
  if (st != AC_OK) return lac_fail(L, &e);
  lac_box_fill(S, b, out);
  return 1;
}

/* inflate(bytes, n) -> n bytes, or nil, message, code */
static int inflate(lua_State *L) {
  lac_state *S = lac_get(L);
  size_t n;
  const char *in = lac_check_string(L, S, 1, "bytes", &n);
  const int64_t size = lac_check_int(L, S, 2, "n");
  if (size < 0) return lac_argerror(L, S, AC_INVALID, NULL, 2, "n", "must not be negative");
  void **p = new_bytes(L);
  *p = malloc((size_t)size + 1);
  if (*p == NULL) return lac_error(L, S, AC_OOM, "out of memory");
  ac_err e;
  if (aci_inflate(in, n, *p, (size_t)size, &e) != AC_OK) return lac_fail(L, &e);
  lua_pushlstring(L, *p, (size_t)size);
  free(*p);
  *p = NULL;
  return 1;
}

/* deflate(bytes) -> bytes, or nil, message, code */
static int deflate(lua_State *L) {
  lac_state *S = lac_get(L);
  size_t n, made;
  const char *in = lac_check_string(L, S, 1, "bytes", &n);
  void **p = new_bytes(L);
  ac_err e;
  if (aci_deflate(in, n, p, &made, &e) != AC_OK) return lac_fail(L, &e);
  lua_pushlstring(L, *p, made);
  free(*p);
  *p = NULL;
  return 1;
}

LAC_OPEN("accel.file.core", array) {
  static const luaL_Reg funcs[] = {
      {"read_array", read_array}, {"inflate", inflate}, {"deflate", deflate}, {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", bytes_gc}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, BYTES, metas, metas + 1);
}
