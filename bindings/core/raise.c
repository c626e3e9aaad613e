/* From ac_err to Lua errors.
 *
 * An error of accel is a table: code ("shape"), message, op, where ("train.lua:12"), traceback,
 * device if an op failed there, and rank if one of the ranks is the cause. It prints as "where: op: message", and the methods of
 * strings work on that text, so that scripts may treat it as the string they expect from Lua. The
 * line named is the nearest one of the caller's own: frames of the library itself are skipped (the
 * traceback has them all). */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bindings/core/lac.h"

static const char key_error;

static void set_string(lua_State *L, const char *key, const char *value) {
  lua_pushstring(L, value);
  lua_setfield(L, -2, key);
}

/* Levels of the stack. Each question walks the stack, so few are asked. */
static int stack_depth(lua_State *L) {
  lua_Debug ar;
  int lo = 0, hi = 1; /* levels below lo are there, hi is not */
  while (lua_getstack(L, hi, &ar)) {
    lo = hi;
    hi *= 2;
  }
  while (lo < hi) {
    const int mid = (lo + hi) / 2;
    if (lua_getstack(L, mid, &ar)) lo = mid + 1;
    else hi = mid;
  }
  return hi;
}

/* As luaL_traceback, which searches every loaded module for a name of each function: 300 us for an
 * error that a script may catch in a loop. Names come from the calls. fn: the function itself, ""
 * if unknown. */
static void push_traceback(lua_State *L, const char *fn) {
  enum { FIRST = 10, LAST = 11 }; /* of a deep stack, as in luaL_traceback */
  lua_Debug ar;
  luaL_Buffer b;
  const int depth = stack_depth(L);
  luaL_buffinit(L, &b);
  luaL_addstring(&b, "stack traceback:");
  for (int level = 0; lua_getstack(L, level, &ar); level++) {
    if (depth > FIRST + LAST && level == FIRST) {
      lua_pushfstring(L, "\n\t...\t(skipping %d levels)", depth - FIRST - LAST);
      luaL_addvalue(&b);
      level = depth - LAST - 1;
      continue;
    }
    lua_getinfo(L, "Slnt", &ar);
    if (ar.currentline > 0) lua_pushfstring(L, "\n\t%s:%d: in ", ar.short_src, ar.currentline);
    else lua_pushfstring(L, "\n\t%s: in ", ar.short_src);
    luaL_addvalue(&b);
    if (*ar.namewhat != 0) lua_pushfstring(L, "%s '%s'", ar.namewhat, ar.name);
    else if (*ar.what == 'm') lua_pushliteral(L, "main chunk");
    else if (*ar.what != 'C') lua_pushfstring(L, "function <%s:%d>", ar.short_src, ar.linedefined);
    else if (level == 0 && *fn != 0) lua_pushfstring(L, "function '%s'", fn);
    else lua_pushliteral(L, "?");
    luaL_addvalue(&b);
    if (ar.istailcall) luaL_addstring(&b, "\n\t(...tail calls...)");
  }
  luaL_pushresult(&b);
}

/* fn: the function, for the traceback. */
static void push_error(lua_State *L, lac_state *S, const ac_err *e, bool with_where,
                       const char *fn) {
  luaL_checkstack(L, 8, "error");
  size_t n = strlen(e->op);
  bool named = n == 0 || (strncmp(e->msg, e->op, n) == 0 && (e->msg[n] == ':' || e->msg[n] == ' '));
  lua_createtable(L, 0, 7);
  set_string(L, "code", ac_status_name(e->code));
  if (n > 0) set_string(L, "op", e->op);
  if (e->device[0] != 0) set_string(L, "device", e->device);
  if (e->rank >= 0) {
    lua_pushinteger(L, e->rank);
    lua_setfield(L, -2, "rank");
  }
  if (with_where) lac_push_where(L, S);
  else lua_pushliteral(L, "");
  size_t len;
  const char *where = lua_tolstring(L, -1, &len);
  if (len > 2) {
    lua_pushlstring(L, where, len - 2);
    lua_setfield(L, -3, "where");
  }
  if (named) lua_pushfstring(L, "%s%s", where, e->msg);
  else lua_pushfstring(L, "%s%s: %s", where, e->op, e->msg);
  lua_setfield(L, -3, "message");
  lua_pop(L, 1);
  push_traceback(L, fn);
  lua_setfield(L, -2, "traceback");
  lua_rawgetp(L, LUA_REGISTRYINDEX, &key_error);
  lua_setmetatable(L, -2);
}

void lac_push_error(lua_State *L, lac_state *S, const ac_err *e, bool with_where) {
  push_error(L, S, e, with_where, e->op);
}

void lac_forget_error(lua_State *L, lac_state *S) {
  lac_errors *e = S->errors;
  if (e->pending != LUA_NOREF && e->pending != e->stop)
    luaL_unref(L, LUA_REGISTRYINDEX, e->pending);
  e->pending = LUA_NOREF;
}

int lac_raise(lua_State *L, lac_state *S, const ac_err *e) {
  if (e->code == AC_CALLBACK && S->errors->pending != LUA_NOREF) {
    /* the callback's own error is passed on unchanged */
    lua_rawgeti(L, LUA_REGISTRYINDEX, S->errors->pending);
    lac_forget_error(L, S);
    return lua_error(L);
  }
  if (e->op[0] == 0) { /* not an op: the function that was called */
    ac_err named = *e;
    lua_Debug ar;
    if (lua_getstack(L, 0, &ar) && lua_getinfo(L, "n", &ar) && ar.name != NULL &&
        ar.namewhat[0] != 'h' && strcmp(ar.namewhat, "metamethod") != 0)
      snprintf(named.op, sizeof named.op, "%s", ar.name);
    lac_push_error(L, S, &named, true);
  } else {
    lac_push_error(L, S, e, true);
  }
  return lua_error(L);
}

int lac_error(lua_State *L, lac_state *S, ac_status code, const char *fmt, ...) {
  ac_err e = {.code = code, .rank = -1};
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(e.msg, sizeof e.msg, fmt, ap);
  va_end(ap);
  lac_push_error(L, S, &e, true);
  return lua_error(L);
}

int lac_argerror(lua_State *L, lac_state *S, ac_status code, const char *fn, int arg,
                 const char *name, const char *fmt, ...) {
  ac_err e = {.code = code, .rank = -1};
  char why[400], n[32] = "";
  lua_Debug ar;
  memset(&ar, 0, sizeof ar);
  if (lua_getstack(L, 0, &ar)) lua_getinfo(L, "n", &ar);
  if (fn == NULL) fn = ar.name != NULL ? ar.name : "?";
  if (ar.namewhat != NULL && strcmp(ar.namewhat, "method") == 0 && arg > 0) {
    arg--; /* as people count in x:op(...) */
    if (arg == 0) snprintf(n, sizeof n, "self");
  }
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(why, sizeof why, fmt, ap);
  va_end(ap);
  if (n[0] != 0) snprintf(e.msg, sizeof e.msg, "bad self in call to '%s' (%s)", fn, why);
  else if (arg == 0) snprintf(e.msg, sizeof e.msg, "bad option '%s' to '%s' (%s)", name, fn, why);
  else snprintf(e.msg, sizeof e.msg, "bad argument #%d '%s' to '%s' (%s)", arg, name, fn, why);
  push_error(L, S, &e, true, fn);
  set_string(L, "op", fn);
  return lua_error(L);
}

int lac_fail(lua_State *L, const ac_err *e) {
  lua_pushnil(L);
  lua_pushstring(L, e->msg);
  lua_pushstring(L, ac_status_name(e->code));
  return 3;
}

const char *lac_typename(lua_State *L, int idx, char *buf, size_t n) {
  const lac_box *b = lac_box_test(L, idx);
  if (b != NULL) {
    if (b->t == NULL) return "released tensor";
    snprintf(buf, n, "%s tensor", ac_dtype_name((ac_dtype)b->t->dtype));
    return buf;
  }
  if (lua_isinteger(L, idx)) {
    snprintf(buf, n, "integer %lld", (long long)lua_tointeger(L, idx));
    return buf;
  }
  if (lua_type(L, idx) == LUA_TNUMBER) {
    snprintf(buf, n, "number %.14g", lua_tonumber(L, idx));
    return buf;
  }
  if (lua_type(L, idx) == LUA_TUSERDATA || lua_type(L, idx) == LUA_TTABLE) {
    if (luaL_getmetafield(L, idx, "__name") == LUA_TSTRING) {
      snprintf(buf, n, "%s", lua_tostring(L, -1));
      lua_pop(L, 1);
      return buf;
    }
  }
  return luaL_typename(L, idx);
}

/* ---- the error object ---- */

static int error_tostring(lua_State *L) {
  if (!lua_istable(L, 1)) {
    luaL_tolstring(L, 1, NULL);
    return 1;
  }
  lua_pushliteral(L, "message");
  lua_rawget(L, 1);
  return 1;
}

static int error_concat(lua_State *L) {
  luaL_tolstring(L, 1, NULL);
  luaL_tolstring(L, 2, NULL);
  lua_concat(L, 2);
  return 1;
}

static int error_len(lua_State *L) {
  size_t n;
  luaL_tolstring(L, 1, &n);
  lua_pushinteger(L, (lua_Integer)n);
  return 1;
}

/* err:find(...): upvalue 1 is string.find */
static int error_string_method(lua_State *L) {
  luaL_tolstring(L, 1, NULL);
  lua_replace(L, 1);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

static int error_index(lua_State *L) {
  if (luaL_getmetafield(L, lua_upvalueindex(1), "__index") != LUA_TTABLE) return 0;
  lua_pushvalue(L, 2);
  if (lua_gettable(L, -2) != LUA_TFUNCTION) return 0;
  lua_pushcclosure(L, error_string_method, 1);
  return 1;
}

void lac_raise_open(lua_State *L, lac_state *S) {
  S->errors = lac_state_part(L, sizeof *S->errors);
  S->errors->pending = LUA_NOREF;
  lua_newtable(L);
  lua_pushliteral(L, "accel.error");
  lua_setfield(L, -2, "__name");
  lua_pushcfunction(L, error_tostring);
  lua_setfield(L, -2, "__tostring");
  lua_pushcfunction(L, error_concat);
  lua_setfield(L, -2, "__concat");
  lua_pushcfunction(L, error_len);
  lua_setfield(L, -2, "__len");
  lua_pushliteral(L, "");
  lua_pushcclosure(L, error_index, 1);
  lua_setfield(L, -2, "__index");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &key_error);
}
