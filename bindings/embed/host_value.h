/* ac_host_value inside the host: host_value.c. Used by host_call.c and host_table.c. */
#ifndef LAC_HOST_VALUE_H
#define LAC_HOST_VALUE_H
#include "host_impl.h"

static inline bool lac_value_is_ref(const ac_host_value *v) {
  return v->type >= AC_HOST_TABLE && v->type <= AC_HOST_OBJECT;
}

/* Pushes a value. May raise. */
void lac_value_push_other(lua_State *L, ac_host *h, const ac_host_value *v);
static inline void lac_value_push(lua_State *L, ac_host *h, const ac_host_value *v) {
  if (v->type == AC_HOST_NUMBER) lua_pushnumber(L, v->n);
  else if (v->type == AC_HOST_INT) lua_pushinteger(L, v->i);
  else if (v->type == AC_HOST_BOOL) lua_pushboolean(L, v->b);
  else lac_value_push_other(L, h, v);
}
/* n values from index base of the stack into results: tensors and references are owned, strings are
 * kept in the host until the next call that returns values. May raise. Then results has what has to
 * be released. */
void lac_values_take(lua_State *L, ac_host *h, int base, int n, ac_host_value *results);
/* The value at idx, borrowed from the stack. A new reference (owned) if it is a table, a function or
 * an object. May raise. */
void lac_value_read_other(lua_State *L, ac_host *h, int idx, ac_host_value *v);
static inline void lac_value_read(lua_State *L, ac_host *h, int idx, ac_host_value *v) {
  if (lua_type(L, idx) != LUA_TNUMBER) {
    lac_value_read_other(L, h, idx, v);
  } else if (lua_isinteger(L, idx)) {
    v->type = AC_HOST_INT;
    v->i = lua_tointeger(L, idx);
  } else {
    v->type = AC_HOST_NUMBER;
    v->n = lua_tonumber(L, idx);
  }
}
/* Releases the references and tensors among results of a call that failed. */
void lac_values_drop(int n, ac_host_value *results);
/* Lets Lua collect the values of references that were released since. */
void lac_refs_drain(ac_host *h);
/* The host closes: its references stay valid for release alone. */
void lac_refs_orphan(ac_host *h);

#endif
