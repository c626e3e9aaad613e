/* Tables of scripts, read and written by the program: ac_host_table_* (accel/host.h). */
#include "host_check.h"
#include "host_value.h"

typedef enum action { NEW, GET, SET, LENGTH, NEXT } action;

typedef struct access {
  ac_host *h;
  action what;
  const ac_host_value *t, *key, *value; /* t NULL: the globals */
  int n;                                /* results that were taken */
  ac_host_value out[2];
  int64_t length;
} access;

static void push_table(lua_State *L, const access *a) {
  if (a->t == NULL) lua_pushglobaltable(L);
  else lac_value_push(L, a->h, a->t);
}

static int access_body(lua_State *L) {
  access *a = lua_touserdata(L, 1);
  if (a->what == NEW) {
    lua_newtable(L);
    a->n = 1;
    lac_values_take(L, a->h, lua_gettop(L), 1, a->out);
    return 0;
  }
  push_table(L, a);
  const int t = lua_gettop(L);
  switch (a->what) {
    case LENGTH: a->length = luaL_len(L, t); return 0;
    case SET:
      lac_value_push(L, a->h, a->key);
      lac_value_push(L, a->h, a->value);
      lua_settable(L, t);
      return 0;
    case GET:
      lac_value_push(L, a->h, a->key);
      lua_gettable(L, t);
      a->n = 1;
      break;
    default:
      luaL_checktype(L, t, LUA_TTABLE);
      lac_value_push(L, a->h, a->key);
      if (lua_next(L, t) == 0) return 0;
      a->n = 2;
  }
  lac_values_take(L, a->h, lua_gettop(L) - a->n + 1, a->n, a->out);
  return 0;
}

/* Checks the arguments, and runs it. A value that is not needed is NULL. */
static ac_status run(access *a, const char *who, ac_err *e) {
  ac_err local;
  if (e == NULL) e = &local;
  AC_TRY(lac_host_check_open(a->h, who, e));
  if (a->t != NULL && a->t->type < AC_HOST_TENSOR)
    return lac_host_invalid(e, who, "expected a table, got a value of type %d", (int)a->t->type);
  if (a->t != NULL) AC_TRY(lac_host_check_values(who, "table", 1, a->t, e));
  if (a->key != NULL) AC_TRY(lac_host_check_values(who, "key", 1, a->key, e));
  if (a->value != NULL) AC_TRY(lac_host_check_values(who, "value", 1, a->value, e));
  const ac_status st = lac_host_protect(a->h, access_body, a, e);
  if (st != AC_OK) lac_values_drop(a->n, a->out);
  return st;
}

ac_status ac_host_table_new(ac_host *h, ac_host_value *out, ac_err *e) {
  HOST_NEEDS(out != NULL, e, "out is NULL");
  access a = {.h = h, .what = NEW};
  const ac_status st = run(&a, __func__, e);
  *out = a.out[0];
  return st;
}

ac_status ac_host_table_get(ac_host *h, const ac_host_value *t, const ac_host_value *key,
                            ac_host_value *out, ac_err *e) {
  HOST_NEEDS(key != NULL && out != NULL, e, "%s is NULL", key == NULL ? "key" : "out");
  access a = {.h = h, .what = GET, .t = t, .key = key};
  const ac_status st = run(&a, __func__, e);
  *out = a.out[0];
  return st;
}

ac_status ac_host_table_set(ac_host *h, const ac_host_value *t, const ac_host_value *key,
                            const ac_host_value *value, ac_err *e) {
  HOST_NEEDS(key != NULL && value != NULL, e, "%s is NULL", key == NULL ? "key" : "value");
  access a = {.h = h, .what = SET, .t = t, .key = key, .value = value};
  return run(&a, __func__, e);
}

ac_status ac_host_table_length(ac_host *h, const ac_host_value *t, int64_t *n, ac_err *e) {
  HOST_NEEDS(n != NULL, e, "n is NULL");
  access a = {.h = h, .what = LENGTH, .t = t};
  const ac_status st = run(&a, __func__, e);
  *n = a.length;
  return st;
}

ac_status ac_host_table_next(ac_host *h, const ac_host_value *t, ac_host_value *key,
                             ac_host_value *value, ac_err *e) {
  HOST_NEEDS(key != NULL && value != NULL, e, "%s is NULL", key == NULL ? "key" : "value");
  access a = {.h = h, .what = NEXT, .t = t, .key = key};
  const ac_status st = run(&a, __func__, e);
  ac_host_value_release(key);
  ac_host_value_release(value);
  *key = a.out[0];
  *value = a.out[1];
  return st;
}
