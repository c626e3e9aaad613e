/* Values between a C program and its scripts: ac_host_call and ac_host_register (accel/host.h). */
#include <stdio.h>
#include <string.h>

#include "bindings/core/lac.h"
#include "host_check.h"

static const char key_results;

/* ---- values ---- */

static void push_value(lua_State *L, lac_state *S, const ac_host_value *v) {
  switch (v->type) {
    case AC_HOST_BOOL: lua_pushboolean(L, v->b); break;
    case AC_HOST_INT: lua_pushinteger(L, v->i); break;
    case AC_HOST_NUMBER: lua_pushnumber(L, v->n); break;
    case AC_HOST_STRING: lua_pushlstring(L, v->s != NULL ? v->s : "", v->len); break;
    case AC_HOST_TENSOR: lac_push_tensor(L, S, v->t); break;
    default: lua_pushnil(L);
  }
}

/* Borrowed: valid while the value is on the stack. false: no such value. */
static bool read_value(lua_State *L, int idx, ac_host_value *v) {
  const lac_box *b;
  *v = (ac_host_value){.type = AC_HOST_NIL};
  switch (lua_type(L, idx)) {
    case LUA_TNIL: return true;
    case LUA_TBOOLEAN:
      v->type = AC_HOST_BOOL;
      v->b = lua_toboolean(L, idx);
      return true;
    case LUA_TNUMBER:
      v->type = lua_isinteger(L, idx) ? AC_HOST_INT : AC_HOST_NUMBER;
      if (v->type == AC_HOST_INT) v->i = lua_tointeger(L, idx);
      else v->n = lua_tonumber(L, idx);
      return true;
    case LUA_TSTRING:
      v->type = AC_HOST_STRING;
      v->s = lua_tolstring(L, idx, &v->len);
      return true;
    case LUA_TUSERDATA:
      b = lac_box_test(L, idx);
      if (b == NULL || b->t == NULL) return false;
      v->type = AC_HOST_TENSOR;
      v->t = b->t;
      return true;
    default: return false;
  }
}

/* Splits "a.b.c": pushes the table that holds c and returns c, or NULL when there is none and
 * `make` is false. */
static const char *find_table(lua_State *L, const char *name, bool make) {
  lua_pushglobaltable(L);
  const char *dot;
  while ((dot = strchr(name, '.')) != NULL) {
    lua_pushlstring(L, name, (size_t)(dot - name));
    lua_pushvalue(L, -1);
    if (lua_rawget(L, -3) != LUA_TTABLE) {
      if (!make || !lua_isnil(L, -1)) return NULL;
      lua_pop(L, 1);
      lua_newtable(L);
      lua_pushvalue(L, -2);
      lua_pushvalue(L, -2);
      lua_rawset(L, -5);
    }
    lua_replace(L, -3);
    lua_pop(L, 1);
    name = dot + 1;
  }
  return name;
}

typedef struct invocation {
  ac_host *h;
  const char *function;
  int n_args, max_results, n_results;
  const ac_host_value *args;
  ac_host_value *results;
} invocation;

static int call_body(lua_State *L) {
  invocation *c = lua_touserdata(L, 1);
  lac_state *S = c->h->S;
  const char *last = find_table(L, c->function, false);
  int type = LUA_TNIL;
  if (last != NULL) {
    lua_pushstring(L, last);
    type = lua_rawget(L, -2);
  }
  if (type != LUA_TFUNCTION && luaL_getmetafield(L, -1, "__call") == LUA_TNIL)
    return lac_error(L, S, AC_NOT_FOUND, "no function '%s' in the script", c->function);
  lua_settop(L, type == LUA_TFUNCTION ? lua_gettop(L) : lua_gettop(L) - 1);
  int base = lua_gettop(L);
  luaL_checkstack(L, c->n_args + 8, "arguments");
  for (int i = 0; i < c->n_args; i++) push_value(L, S, &c->args[i]);
  lua_call(L, c->n_args, LUA_MULTRET);
  int n = lua_gettop(L) - base + 1;
  if (n > c->max_results) n = c->max_results;
  for (int i = 0; i < n; i++)
    if (!read_value(L, base + i, &c->results[i]))
      return lac_error(L, S, AC_DTYPE, "%s: result %d is %s, which a host cannot take", c->function,
                       i + 1, luaL_typename(L, base + i));
  lua_createtable(L, n, 0); /* strings live until the next call */
  for (int i = 0; i < n; i++) {
    lua_pushvalue(L, base + i);
    lua_rawseti(L, -2, i + 1);
  }
  lua_rawsetp(L, LUA_REGISTRYINDEX, &key_results);
  /* again, now that nothing can run the collector and its finalizers any more */
  for (int i = 0; i < n; i++) {
    read_value(L, base + i, &c->results[i]);
    if (c->results[i].type == AC_HOST_TENSOR) ac_tensor_retain(c->results[i].t);
  }
  c->n_results = n;
  return 0;
}

ac_status ac_host_call(ac_host *h, const char *function, int n_args, const ac_host_value *args,
                       int max_results, ac_host_value *results, int *n_results, ac_err *e) {
  ac_err local;
  if (n_results != NULL) *n_results = 0;
  AC_TRY(lac_host_check_open(h, __func__, e));
  AC_TRY(lac_host_check_name(__func__, function, e));
  HOST_NEEDS(n_args >= 0 && (n_args == 0 || args != NULL), e, "%d arguments at %s", n_args,
             args != NULL ? "an address" : "NULL");
  HOST_NEEDS(max_results >= 0 && (max_results == 0 || results != NULL), e,
             "up to %d results into %s", max_results, results != NULL ? "an address" : "NULL");
  AC_TRY(lac_host_check_values(__func__, "argument", n_args, args, e));
  invocation c = {h, function, n_args, max_results, 0, args, results};
  ac_status st = lac_host_protect(h, call_body, &c, e != NULL ? e : &local);
  if (n_results != NULL) *n_results = c.n_results;
  return st;
}

/* ---- C functions for scripts ---- */

enum { MAX_FN_VALUES = 32 };
typedef struct registration {
  ac_host *h;
  const char *name;
  ac_host_fn fn;
  void *user;
} registration;

/* Holds result tensors between the C function and their boxes. */
typedef struct holder {
  int n;
  ac_tensor *t[MAX_FN_VALUES];
} holder;

static int holder_gc(lua_State *L) {
  holder *k = lua_touserdata(L, 1);
  for (int i = 0; i < k->n; i++) ac_tensor_release(k->t[i]);
  k->n = 0;
  return 0;
}

/* Upvalues: the registration (userdata), metatable of holders. Arguments are borrowed from the
 * stack for the call. The holder owns result tensors from the return of the C function until each
 * has its box. */
static int call_host(lua_State *L) {
  const registration *r = lua_touserdata(L, lua_upvalueindex(1));
  lac_state *S = r->h->S;
  ac_host_value args[MAX_FN_VALUES], results[MAX_FN_VALUES];
  int n = lua_gettop(L), n_results = 0;
  if (n > MAX_FN_VALUES)
    return lac_error(L, S, AC_INVALID, "%s: %d arguments at most", r->name, MAX_FN_VALUES);
  luaL_checkstack(L, MAX_FN_VALUES + 8, "results");
  holder *k = lua_newuserdatauv(L, sizeof *k, 0);
  k->n = 0;
  lua_pushvalue(L, lua_upvalueindex(2));
  lua_setmetatable(L, -2);
  char buf[96];
  for (int i = 0; i < n; i++)
    if (!read_value(L, i + 1, &args[i]))
      return lac_argerror(L, S, AC_INVALID, r->name, i + 1, "value",
                          "expected nil, boolean, number, string or tensor, got %s",
                          lac_typename(L, i + 1, buf, sizeof buf));
  ac_err e;
  e.op[0] = 0;
  e.msg[0] = 0;
  e.rank = -1;
  lua_State *was = lac_enter(L, S);
  ac_status st = r->fn(r->user, S->ctx, n, args, MAX_FN_VALUES, results, &n_results, &e);
  lac_leave(S, was);
  if (st != AC_OK) {
    if ((unsigned)st > AC_TIMEOUT) {
      st = AC_FAIL(&e, INVALID, "the function returned %d, which is not an ac_status", (int)st);
    } else if (e.msg[0] == 0) {
      AC_FAIL(&e, CALLBACK, "the function failed with %s and gave no reason", ac_status_name(st));
    }
    e.code = st;
    if (e.op[0] == 0) snprintf(e.op, sizeof e.op, "%s", r->name);
    return lac_raise(L, S, &e);
  }
  if (n_results < 0 || n_results > MAX_FN_VALUES)
    return lac_error(L, S, AC_INVALID, "%s: the function set n_results to %d; expected 0 to %d",
                     r->name, n_results, MAX_FN_VALUES);
  for (int i = 0; i < n_results; i++)
    if (results[i].type == AC_HOST_TENSOR && results[i].t != NULL) k->t[k->n++] = results[i].t;
  if (lac_host_check_values(r->name, "result", n_results, results, &e) != AC_OK)
    return lac_raise(L, S, &e);
  for (int i = 0; i < n_results; i++) push_value(L, S, &results[i]);
  for (int i = 0; i < k->n; i++) ac_tensor_release(k->t[i]);
  k->n = 0;
  return n_results;
}

static int register_body(lua_State *L) {
  const registration *p = lua_touserdata(L, 1);
  const char *last = find_table(L, p->name, true);
  if (last == NULL)
    return lac_error(L, p->h->S, AC_STATE, "register '%s': a part of the name is not a table",
                     p->name);
  lua_pushstring(L, last);
  registration *r = lua_newuserdatauv(L, sizeof *r, 1);
  *r = *p;
  lua_pushstring(L, p->name);
  r->name = lua_tostring(L, -1);
  lua_setiuservalue(L, -2, 1);
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, holder_gc);
  lua_setfield(L, -2, "__gc");
  lua_pushcclosure(L, call_host, 2);
  lua_rawset(L, -3);
  return 0;
}

ac_status ac_host_register(ac_host *h, const char *name, ac_host_fn fn, void *user, ac_err *e) {
  ac_err local;
  AC_TRY(lac_host_check_open(h, __func__, e));
  AC_TRY(lac_host_check_name(__func__, name, e));
  HOST_NEEDS(fn != NULL, e, "the function of '%.100s' is NULL", name);
  registration r = {h, name, fn, user};
  return lac_host_protect(h, register_body, &r, e != NULL ? e : &local);
}
