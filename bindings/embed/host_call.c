/* Calls between a C program and its scripts: ac_host_call, ac_host_call_value and ac_host_register
 * (accel/host.h). */
#include <stdio.h>
#include <string.h>

#include "bindings/core/lac.h"
#include "host_check.h"
#include "host_value.h"

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
  const char *name;              /* of a global, or */
  const ac_host_value *function; /* ... a value */
  int n_args, max_results, n_results;
  const ac_host_value *args;
  ac_host_value *results;
} invocation;

/* Pushes the function. Raises for an unknown name, and for a value that cannot be called. */
static void push_function(lua_State *L, const invocation *c) {
  lac_state *S = c->h->S;
  int type = LUA_TNIL;
  if (c->function != NULL) {
    lac_value_push(L, c->h, c->function);
    type = lua_type(L, -1);
  } else {
    const char *last = find_table(L, c->name, false);
    if (last != NULL) {
      lua_pushstring(L, last);
      type = lua_rawget(L, -2);
    }
  }
  if (type == LUA_TFUNCTION) return;
  if (luaL_getmetafield(L, -1, "__call") != LUA_TNIL) {
    lua_pop(L, 1);
  } else if (c->function != NULL) {
    lac_error(L, S, AC_INVALID, "ac_host_call_value: expected a function, got %s",
              luaL_typename(L, -1));
  } else {
    lac_error(L, S, AC_NOT_FOUND, "no function '%s' in the script", c->name);
  }
}

static int call_body(lua_State *L) {
  invocation *c = lua_touserdata(L, 1);
  push_function(L, c);
  const int base = lua_gettop(L);
  luaL_checkstack(L, c->n_args + 8, "arguments");
  for (int i = 0; i < c->n_args; i++) lac_value_push(L, c->h, &c->args[i]);
  lua_call(L, c->n_args, LUA_MULTRET);
  int n = lua_gettop(L) - base + 1;
  if (n > c->max_results) n = c->max_results;
  luaL_checkstack(L, 8, "results");
  c->n_results = n;
  lac_values_take(L, c->h, base, n, c->results);
  return 0;
}

static ac_status call(invocation *c, const char *who, int *n_results, ac_err *e) {
  ac_err local;
  if (n_results != NULL) *n_results = 0;
  if (c->n_args < 0 || (c->n_args > 0 && c->args == NULL))
    return lac_host_invalid(e, who, "%d arguments at %s", c->n_args,
                            c->args != NULL ? "an address" : "NULL");
  if (c->max_results < 0 || (c->max_results > 0 && c->results == NULL))
    return lac_host_invalid(e, who, "up to %d results into %s", c->max_results,
                            c->results != NULL ? "an address" : "NULL");
  AC_TRY(lac_host_check_values(who, "argument", c->n_args, c->args, e));
  for (int i = 0; i < c->max_results; i++) c->results[i] = (ac_host_value){.type = AC_HOST_NIL};
  const ac_status st = lac_host_protect(c->h, call_body, c, e != NULL ? e : &local);
  if (st != AC_OK) {
    lac_values_drop(c->n_results, c->results);
    c->n_results = 0;
  }
  if (n_results != NULL) *n_results = c->n_results;
  return st;
}

ac_status ac_host_call(ac_host *h, const char *function, int n_args, const ac_host_value *args,
                       int max_results, ac_host_value *results, int *n_results, ac_err *e) {
  AC_TRY(lac_host_check_open(h, __func__, e));
  AC_TRY(lac_host_check_name(__func__, function, e));
  invocation c = {h, function, NULL, n_args, max_results, 0, args, results};
  return call(&c, __func__, n_results, e);
}

ac_status ac_host_call_value(ac_host *h, const ac_host_value *function, int n_args,
                             const ac_host_value *args, int max_results, ac_host_value *results,
                             int *n_results, ac_err *e) {
  AC_TRY(lac_host_check_open(h, __func__, e));
  HOST_NEEDS(function != NULL, e, "the function is NULL");
  AC_TRY(lac_host_check_values(__func__, "function", 1, function, e));
  invocation c = {h, NULL, function, n_args, max_results, 0, args, results};
  return call(&c, __func__, n_results, e);
}

/* ---- C functions for scripts ---- */

enum { MAX_FN_VALUES = 32 };
typedef struct registration {
  ac_host *h;
  const char *name;
  ac_host_fn fn;
  void *user;
} registration;

/* Holds results of the C function until they are on the stack, and the references among its
 * arguments until it has returned: tensors, and references with the lowest bit set. Small, because
 * every call makes one. */
typedef struct holder {
  int n;
  uintptr_t owned[];
} holder;

static void hold(holder *k, const ac_host_value *v) {
  if (v->type == AC_HOST_TENSOR && v->t != NULL) k->owned[k->n++] = (uintptr_t)v->t;
  else if (lac_value_is_ref(v) && v->ref != NULL) k->owned[k->n++] = (uintptr_t)v->ref | 1;
}

static void release_held(holder *k) {
  while (k->n > 0) {
    const uintptr_t p = k->owned[--k->n];
    ac_host_value v = {.type = p & 1 ? AC_HOST_TABLE : AC_HOST_TENSOR};
    if (p & 1) v.ref = (ac_host_ref *)(p & ~(uintptr_t)1);
    else v.t = (ac_tensor *)p;
    ac_host_value_release(&v);
  }
}

/* Arguments that may need a reference. */
static int count_objects(lua_State *L, int n) {
  int objects = 0;
  for (int i = 1; i <= n; i++) objects += lua_type(L, i) >= LUA_TTABLE || lua_islightuserdata(L, i);
  return objects;
}

static int holder_gc(lua_State *L) {
  release_held(lua_touserdata(L, 1));
  return 0;
}

/* Upvalues: the registration (userdata), metatable of holders. Arguments are borrowed from the
 * stack for the call. The holder owns results from the return of the C function until each is on
 * the stack. */
static int call_host(lua_State *L) {
  const registration *r = lua_touserdata(L, lua_upvalueindex(1));
  lac_state *S = r->h->S;
  ac_host_value args[MAX_FN_VALUES], results[MAX_FN_VALUES];
  int n = lua_gettop(L), n_results = 0;
  if (n > MAX_FN_VALUES)
    return lac_error(L, S, AC_INVALID, "%s: %d arguments at most", r->name, MAX_FN_VALUES);
  luaL_checkstack(L, MAX_FN_VALUES + 8, "results");
  const size_t room = (size_t)(MAX_FN_VALUES + count_objects(L, n));
  holder *k = lua_newuserdatauv(L, sizeof *k + room * sizeof k->owned[0], 0);
  k->n = 0;
  lua_pushvalue(L, lua_upvalueindex(2));
  lua_setmetatable(L, -2);
  for (int i = 0; i < n; i++) {
    lac_value_read(L, r->h, i + 1, &args[i]);
    if (lac_value_is_ref(&args[i])) hold(k, &args[i]);
  }
  ac_err e;
  e.op[0] = 0;
  e.device[0] = 0;
  e.msg[0] = 0;
  e.rank = -1;
  lua_State *was = lac_enter(L, S);
  ac_status st = r->fn(r->user, S->ctx, n, args, MAX_FN_VALUES, results, &n_results, &e);
  lac_leave(S, was);
  if (st != AC_OK) {
    if ((unsigned)st > AC_STATUS_LAST) {
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
  for (int i = 0; i < n_results; i++) hold(k, &results[i]);
  if (lac_host_check_values(r->name, "result", n_results, results, &e) != AC_OK)
    return lac_raise(L, S, &e);
  for (int i = 0; i < n_results; i++) lac_value_push(L, r->h, &results[i]);
  release_held(k);
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
