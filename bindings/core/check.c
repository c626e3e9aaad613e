/* Arguments of hand-written functions: each check returns the value or raises "bad argument #n
 * 'name' to 'function' (...)". */
#include <math.h>
#include <string.h>

#include "bindings/core/lac.h"
#include "ops/core/ctx_impl.h"
#include "ops/core/fuse.h"

bool lac_is_opts(lua_State *L, int idx) {
  if (!lua_istable(L, idx) || lua_rawlen(L, idx) > 0) return false;
  idx = lua_absindex(L, idx);
  lua_pushnil(L);
  if (!lua_next(L, idx)) return false;
  bool named = lua_type(L, -2) == LUA_TSTRING;
  lua_pop(L, 2);
  return named;
}

static int expected(lua_State *L, lac_state *S, int idx, const char *name, const char *what) {
  char buf[96];
  return lac_argerror(L, S, AC_INVALID, NULL, idx, name, "expected %s, got %s", what,
                      lac_typename(L, idx, buf, sizeof buf));
}

lac_box *lac_check_box(lua_State *L, lac_state *S, int idx, const char *name) {
  lac_box *b = lac_box_test(L, idx);
  if (b == NULL) expected(L, S, idx, name, "tensor");
  if (S->ctx == NULL) luaL_error(L, "accel is closed"); /* the boxes' references were released */
  if (b->t == NULL) {
    lac_site_push(L, b->site);
    if (lua_isstring(L, -1))
      lac_argerror(L, S, AC_RELEASED, NULL, idx, name, "the tensor was released at %s",
                   lua_tostring(L, -1));
    lac_argerror(L, S, AC_RELEASED, NULL, idx, name, "the tensor was released");
  }
  return b;
}

/* These functions use a tensor outside of ops: its values must be in memory, and no waiting call
 * may read values that they change (accel.compile). */
static ac_tensor *settled(lua_State *L, lac_state *S, ac_tensor *t) {
  ac_err e;
  if (S->ctx->n_observers != 0 && aci_fuse_settle(S->ctx, t, &e) != AC_OK) lac_raise(L, S, &e);
  return t;
}

ac_tensor *lac_check_tensor(lua_State *L, lac_state *S, int idx, const char *name) {
  return settled(L, S, lac_check_box(L, S, idx, name)->t);
}

int64_t lac_check_int(lua_State *L, lac_state *S, int idx, const char *name) {
  int ok = 0;
  lua_Integer i = lua_type(L, idx) == LUA_TNUMBER ? lua_tointegerx(L, idx, &ok) : 0;
  if (!ok) expected(L, S, idx, name, "integer");
  return i;
}

double lac_check_number(lua_State *L, lac_state *S, int idx, const char *name) {
  if (lua_type(L, idx) != LUA_TNUMBER) expected(L, S, idx, name, "number");
  return lua_tonumber(L, idx);
}

bool lac_check_bool(lua_State *L, lac_state *S, int idx, const char *name) {
  if (!lua_isboolean(L, idx)) expected(L, S, idx, name, "boolean");
  return lua_toboolean(L, idx);
}

const char *lac_check_string(lua_State *L, lac_state *S, int idx, const char *name, size_t *len) {
  if (lua_type(L, idx) != LUA_TSTRING) expected(L, S, idx, name, "string");
  return lua_tolstring(L, idx, len);
}

const char *lac_check_path(lua_State *L, lac_state *S, int idx, const char *name, size_t *len) {
  lac_check_string(L, S, idx, name, NULL);
  if (S->map_path != NULL) S->map_path(L, S, lua_absindex(L, idx));
  return lua_tolstring(L, idx, len);
}

ac_dtype lac_check_dtype(lua_State *L, lac_state *S, int idx, const char *name) {
  ac_dtype d = AC_F32;
  if (lua_type(L, idx) != LUA_TSTRING) expected(L, S, idx, name, "dtype such as \"f32\"");
  if (!ac_dtype_find(lua_tostring(L, idx), &d)) {
    const char *names[AC_DTYPE_COUNT];
    for (int i = 0; i < AC_DTYPE_COUNT; i++) names[i] = ac_dtype_name((ac_dtype)i);
    const char *near = ac_nearest(lua_tostring(L, idx), names, AC_DTYPE_COUNT);
    lac_argerror(L, S, AC_INVALID, NULL, idx, name,
                 "no dtype '%s'%s%s%s; there are f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool c64 c128",
                 lua_tostring(L, idx), near != NULL ? "; did you mean '" : "",
                 near != NULL ? near : "", near != NULL ? "'" : "");
  }
  return d;
}

ac_device *lac_check_device(lua_State *L, lac_state *S, int idx, const char *name) {
  ac_err e;
  ac_device *d = NULL;
  if (lua_type(L, idx) != LUA_TSTRING) expected(L, S, idx, name, "device such as \"cpu\"");
  if (ac_ctx_device(S->ctx, lua_tostring(L, idx), &d, &e) != AC_OK)
    lac_argerror(L, S, e.code, NULL, idx, name, "%s", e.msg);
  return d;
}

ac_generator *lac_check_generator(lua_State *L, lac_state *S, int idx, const char *name) {
  ac_generator *g = luaL_testudata(L, idx, "accel.Generator");
  if (g == NULL) expected(L, S, idx, name, "generator");
  return g;
}

void lac_check_last(lua_State *L, lac_state *S, int last) {
  for (int i = last + 1; i <= lua_gettop(L); i++)
    if (!lua_isnil(L, i))
      lac_argerror(L, S, AC_INVALID, NULL, i, "...",
                   "unexpected: nothing follows the last argument");
}

void lac_check_function(lua_State *L, lac_state *S, int idx, const char *name) {
  if (lua_isfunction(L, idx)) return;
  bool callable = luaL_getmetafield(L, idx, "__call") != LUA_TNIL;
  if (!callable) expected(L, S, idx, name, "function");
  lua_pop(L, 1);
}

bool lac_is_scalar(lua_State *L, int idx, ac_scalar *out) {
  switch (lua_type(L, idx)) {
    case LUA_TNUMBER:
      if (lua_isinteger(L, idx)) {
        out->kind = AC_SCALAR_INT;
        out->i = lua_tointeger(L, idx);
      } else {
        out->kind = AC_SCALAR_FLOAT;
        out->f = lua_tonumber(L, idx);
      }
      return true;
    case LUA_TBOOLEAN:
      out->kind = AC_SCALAR_BOOL;
      out->i = lua_toboolean(L, idx);
      return true;
    default: return false;
  }
}

int lac_check_shape(lua_State *L, lac_state *S, int idx, int last, const char *name, int64_t *shape,
                    int *next) {
  int n = 0;
  if (lua_istable(L, idx) && !lac_is_opts(L, idx)) {
    lua_Unsigned len = lua_rawlen(L, idx);
    if (len > AC_MAX_DIMS)
      lac_argerror(L, S, AC_SHAPE, NULL, idx, name, "%d dims at most", AC_MAX_DIMS);
    for (; n < (int)len; n++) {
      int ok;
      lua_rawgeti(L, idx, n + 1);
      shape[n] = lua_tointegerx(L, -1, &ok);
      if (!ok || lua_type(L, -1) != LUA_TNUMBER)
        lac_argerror(L, S, AC_INVALID, NULL, idx, name, "entry %d: expected integer, got %s", n + 1,
                     luaL_typename(L, -1));
      lua_pop(L, 1);
    }
    *next = idx + 1;
  } else {
    int i = idx;
    for (; i <= last && lua_type(L, i) == LUA_TNUMBER; i++) {
      if (n == AC_MAX_DIMS)
        lac_argerror(L, S, AC_SHAPE, NULL, i, name, "%d dims at most", AC_MAX_DIMS);
      shape[n++] = lac_check_int(L, S, i, name);
    }
    if (i <= last && n == 0 && !lac_is_opts(L, i) && !lua_isnil(L, i))
      expected(L, S, i, name, "integers or a table of integers");
    *next = i;
  }
  for (int i = 0; i < n; i++)
    if (shape[i] < 0)
      lac_argerror(L, S, AC_SHAPE, NULL, idx, name, "extent %d is negative: %lld", i + 1,
                   (long long)shape[i]);
  return n;
}

int64_t lac_check_pos(lua_State *L, lac_state *S, int idx, int64_t n, const char *name) {
  int64_t i = lac_check_int(L, S, idx, name);
  if (i == 0)
    lac_argerror(L, S, AC_INDEX, NULL, idx, name, "positions count from 1 (or from -1, the last)");
  int64_t z = i < 0 ? i + n : i - 1;
  if (z < 0 || z >= n)
    lac_argerror(L, S, AC_INDEX, NULL, idx, name, "%lld is out of range, there %s %lld",
                 (long long)i, n == 1 ? "is" : "are", (long long)n);
  return z;
}

/* ---- lists of tensors that stay alive while the core works on them, whatever callbacks release meanwhile
 * ---- */

static const char key_list;

static int list_gc(lua_State *L) {
  lac_list *l = lua_touserdata(L, 1);
  for (int i = 0; i < l->n; i++) {
    ac_tensor_release(l->t[i]);
    l->t[i] = NULL;
  }
  l->n = 0;
  return 0;
}

lac_list *lac_list_new(lua_State *L, size_t cap) {
  lac_list *l = lua_newuserdatauv(L, sizeof *l + cap * sizeof l->t[0], 0);
  l->n = 0;
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &key_list) == LUA_TNIL) {
    lua_pop(L, 1);
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, list_gc);
    lua_setfield(L, -2, "__gc");
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &key_list);
  }
  lua_setmetatable(L, -2);
  return l;
}

lac_list *lac_check_list(lua_State *L, lac_state *S, int idx, const char *name, bool nils) {
  bool single = lac_box_test(L, idx) != NULL;
  if (!single && !lua_istable(L, idx)) expected(L, S, idx, name, "tensor or list of tensors");
  lua_Unsigned n = single ? 1 : lua_rawlen(L, idx);
  if (!single && nils) { /* holes: count up to the largest position */
    for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1))
      if (lua_isinteger(L, -2) && lua_tointeger(L, -2) > (lua_Integer)n &&
          lua_tointeger(L, -2) < INT32_MAX)
        n = (lua_Unsigned)lua_tointeger(L, -2);
  }
  if (n > INT32_MAX / 16) lac_argerror(L, S, AC_INVALID, NULL, idx, name, "the list is too long");
  lac_list *l = lac_list_new(L, n);
  for (lua_Unsigned i = 0; i < n; i++) {
    ac_tensor *t = NULL;
    if (single) {
      t = lac_check_tensor(L, S, idx, name);
    } else {
      lua_rawgeti(L, idx, (lua_Integer)i + 1);
      const lac_box *b = lac_box_test(L, -1);
      if (b == NULL && !(nils && lua_isnil(L, -1)))
        lac_argerror(L, S, AC_INVALID, NULL, idx, name, "expected list of tensors, entry %d is %s",
                     (int)i + 1, luaL_typename(L, -1));
      if (b != NULL && b->t == NULL)
        lac_argerror(L, S, AC_RELEASED, NULL, idx, name, "entry %d is a released tensor",
                     (int)i + 1);
      if (b != NULL) t = settled(L, S, b->t);
      lua_pop(L, 1);
    }
    if (t != NULL) ac_tensor_retain(t);
    l->t[l->n++] = t;
  }
  return l;
}

/* Drops the references now instead of at the next collection. */
void lac_list_release(lac_list *l) {
  for (int i = 0; i < l->n; i++) ac_tensor_release(l->t[i]);
  l->n = 0;
}
