/* Tables of declared options at the end of the arguments: an unknown key is an error that names the
 * nearest one. */
#include <stdio.h>
#include <string.h>

#include "bindings/core/lac.h"

/* Lua drops arguments beyond those that a function reads, and a misplaced option with them. */
static void refuse_after(lua_State *L, lac_state *S, int idx) {
  char buf[96];
  for (int i = idx + 1; i <= lua_gettop(L); i++) {
    if (!lua_isnil(L, i))
      lac_argerror(L, S, AC_INVALID, NULL, i, "options",
                   "unexpected %s; options go into one table at the end",
                   lac_typename(L, i, buf, sizeof buf));
  }
}

void lac_args_end(lua_State *L, lac_state *S, int n) {
  refuse_after(L, S, n);
  lua_settop(L, n);
}

lac_opts lac_opts_open(lua_State *L, lac_state *S, int idx, const char *const *names) {
  refuse_after(L, S, idx);
  return lac_opts_open_first(L, S, idx, names);
}

lac_opts lac_opts_open_first(lua_State *L, lac_state *S, int idx, const char *const *names) {
  lac_opts o = {L, S, 0};
  if (lua_isnoneornil(L, idx)) return o;
  char buf[96];
  if (!lua_istable(L, idx))
    lac_argerror(L, S, AC_INVALID, NULL, idx, "options", "expected table, got %s",
                 lac_typename(L, idx, buf, sizeof buf));
  o.idx = lua_absindex(L, idx);
  int n = 0;
  while (names[n] != NULL) n++;
  for (lua_pushnil(L); lua_next(L, o.idx); lua_pop(L, 1)) {
    if (lua_type(L, -2) != LUA_TSTRING)
      lac_argerror(L, S, AC_INVALID, NULL, idx, "options", "keys must be names, found %s",
                   lac_typename(L, -2, buf, sizeof buf));
    const char *key = lua_tostring(L, -2);
    int i = 0;
    while (i < n && strcmp(names[i], key) != 0) i++;
    if (i == n) {
      const char *near = ac_nearest(key, names, n);
      char list[400] = "";
      for (int k = 0; k < n; k++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", k ? ", " : "", names[k]);
      if (near != NULL)
        lac_argerror(L, S, AC_INVALID, NULL, 0, key, "no such option; did you mean '%s'?", near);
      lac_argerror(L, S, AC_INVALID, NULL, 0, key, "no such option; there %s %s",
                   n == 1 ? "is" : "are", n ? list : "none");
    }
  }
  return o;
}

int lac_opt_push(const lac_opts *o, const char *name) {
  if (o->idx == 0) return 0;
  if (lua_getfield(o->L, o->idx, name) == LUA_TNIL) {
    lua_pop(o->L, 1);
    return 0;
  }
  return lua_gettop(o->L);
}

static void expected(const lac_opts *o, const char *name, const char *what) {
  char buf[96];
  lac_argerror(o->L, o->S, AC_INVALID, NULL, 0, name, "expected %s, got %s", what,
               lac_typename(o->L, -1, buf, sizeof buf));
}

bool lac_opt_bool(const lac_opts *o, const char *name, bool fallback) {
  if (!lac_opt_push(o, name)) return fallback;
  if (!lua_isboolean(o->L, -1)) expected(o, name, "boolean");
  bool b = lua_toboolean(o->L, -1);
  lua_pop(o->L, 1);
  return b;
}

int64_t lac_opt_int(const lac_opts *o, const char *name, int64_t fallback) {
  if (!lac_opt_push(o, name)) return fallback;
  int ok = 0;
  lua_Integer i = lua_type(o->L, -1) == LUA_TNUMBER ? lua_tointegerx(o->L, -1, &ok) : 0;
  if (!ok) expected(o, name, "integer");
  lua_pop(o->L, 1);
  return i;
}

double lac_opt_number(const lac_opts *o, const char *name, double fallback) {
  if (!lac_opt_push(o, name)) return fallback;
  if (lua_type(o->L, -1) != LUA_TNUMBER) expected(o, name, "number");
  double d = lua_tonumber(o->L, -1);
  lua_pop(o->L, 1);
  return d;
}

/* The string stays anchored in the table of options. */
const char *lac_opt_string(const lac_opts *o, const char *name, const char *fallback) {
  if (!lac_opt_push(o, name)) return fallback;
  if (lua_type(o->L, -1) != LUA_TSTRING) expected(o, name, "string");
  const char *s = lua_tostring(o->L, -1);
  lua_pop(o->L, 1);
  return s;
}

bool lac_opt_dtype(const lac_opts *o, const char *name, ac_dtype *out) {
  const char *s = lac_opt_string(o, name, NULL);
  if (s == NULL) return false;
  if (!ac_dtype_find(s, out))
    lac_argerror(o->L, o->S, AC_INVALID, NULL, 0, name,
                 "no dtype '%s'; there are f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool c64 c128", s);
  return true;
}

ac_device *lac_opt_device(const lac_opts *o, const char *name, ac_device *fallback) {
  ac_err e;
  ac_device *d = NULL;
  const char *s = lac_opt_string(o, name, NULL);
  if (s == NULL) return fallback != NULL ? fallback : ac_ctx_default_device(o->S->ctx);
  if (ac_ctx_device(o->S->ctx, s, &d, &e) != AC_OK)
    lac_argerror(o->L, o->S, e.code, NULL, 0, name, "%s", e.msg);
  return d;
}

ac_generator *lac_opt_generator(const lac_opts *o, const char *name) {
  if (!lac_opt_push(o, name)) return NULL;
  ac_generator *g = luaL_testudata(o->L, -1, "accel.Generator");
  if (g == NULL) expected(o, name, "generator");
  lua_pop(o->L, 1);
  return g;
}

int lac_opt_shape(const lac_opts *o, const char *name, int64_t *shape) {
  int i = lac_opt_push(o, name), next;
  if (i == 0) return -1;
  if (!lua_istable(o->L, -1)) expected(o, name, "table of integers");
  int n = lac_check_shape(o->L, o->S, i, i, name, shape, &next);
  lua_pop(o->L, 1);
  return n;
}

/* accel.nearest(word, list of names) -> the one that was probably meant, or nil */
static int nearest(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *word = lac_check_string(L, S, 1, "word", NULL);
  luaL_checktype(L, 2, LUA_TTABLE);
  int n = (int)lua_rawlen(L, 2), k = 0;
  const char **names = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof *names, 0);
  for (int i = 1; i <= n; i++) {
    /* anchored by the list */
    if (lua_rawgeti(L, 2, i) == LUA_TSTRING) names[k++] = lua_tostring(L, -1);
    lua_pop(L, 1);
  }
  lua_pushstring(L, ac_nearest(word, names, k));
  return 1;
}

LAC_OPEN("accel", opts) {
  static const luaL_Reg funcs[] = {{"nearest", nearest}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}
