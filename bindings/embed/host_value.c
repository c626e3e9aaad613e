/* Values between a program and the scripts of a host: ac_host_value and its references
 * (accel/host.h).
 *
 * A reference anchors a table, a function or another object in Lua's registry. It is counted, and
 * may be released on any thread, within any call and after its host was closed. So a release moves
 * it to a list of its host, and the next call of the host unanchors it. The host has a list of its
 * references, to tell them when it closes. */
#include "host_value.h"

#include <pthread.h>
#include <stdlib.h>

struct ac_host_ref {
  ac_host *h; /* NULL: closed */
  int key;    /* in the registry */
  atomic_int count;
  ac_host_ref *next, *prev; /* of the host's */
};

static const char key_results;
/* process-wide: a reference may outlive its host. Guards h, the lists, and nothing that takes long */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- references ---- */

static void link_ref(ac_host_ref **list, ac_host_ref *r) {
  r->prev = NULL;
  r->next = *list;
  if (r->next != NULL) r->next->prev = r;
  *list = r;
}

static void unlink_ref(ac_host_ref **list, ac_host_ref *r) {
  if (r->prev != NULL) r->prev->next = r->next;
  else *list = r->next;
  if (r->next != NULL) r->next->prev = r->prev;
}

static ac_host_ref *new_ref(lua_State *L, ac_host *h, int idx) {
  lua_pushvalue(L, idx);
  const int key = luaL_ref(L, LUA_REGISTRYINDEX);
  ac_host_ref *r = calloc(1, sizeof *r);
  if (r == NULL) {
    luaL_unref(L, LUA_REGISTRYINDEX, key);
    lac_error(L, h->S, AC_OOM, "no memory for a reference");
  }
  r->h = h;
  r->key = key;
  atomic_init(&r->count, 1);
  pthread_mutex_lock(&lock);
  link_ref(&h->refs, r);
  pthread_mutex_unlock(&lock);
  return r;
}

static void release_ref(ac_host_ref *r) {
  if (r == NULL || atomic_fetch_sub(&r->count, 1) != 1) return;
  pthread_mutex_lock(&lock);
  const bool open = r->h != NULL;
  if (open) {
    unlink_ref(&r->h->refs, r);
    link_ref(&r->h->dead_refs, r);
    atomic_store(&r->h->has_dead, true);
  }
  pthread_mutex_unlock(&lock);
  if (!open) free(r);
}

void lac_refs_drain(ac_host *h) {
  pthread_mutex_lock(&lock);
  ac_host_ref *list = h->dead_refs;
  h->dead_refs = NULL;
  atomic_store(&h->has_dead, false);
  pthread_mutex_unlock(&lock);
  while (list != NULL) {
    ac_host_ref *next = list->next;
    luaL_unref(h->L, LUA_REGISTRYINDEX, list->key); /* allocates nothing */
    free(list);
    list = next;
  }
}

void lac_refs_orphan(ac_host *h) {
  pthread_mutex_lock(&lock);
  for (ac_host_ref *r = h->refs; r != NULL; r = r->next) r->h = NULL;
  ac_host_ref *list = h->dead_refs;
  h->refs = h->dead_refs = NULL;
  pthread_mutex_unlock(&lock);
  while (list != NULL) {
    ac_host_ref *next = list->next;
    free(list);
    list = next;
  }
}

void ac_host_value_retain(const ac_host_value *v) {
  if (v == NULL) return;
  if (v->type == AC_HOST_TENSOR && v->t != NULL) ac_tensor_retain(v->t);
  else if (lac_value_is_ref(v) && v->ref != NULL) atomic_fetch_add(&v->ref->count, 1);
}

void ac_host_value_release(ac_host_value *v) {
  if (v == NULL) return;
  if (v->type == AC_HOST_TENSOR) ac_tensor_release(v->t);
  else if (lac_value_is_ref(v)) release_ref(v->ref);
  *v = (ac_host_value){.type = AC_HOST_NIL};
}

/* ---- to and from the stack ---- */

void lac_value_push_other(lua_State *L, ac_host *h, const ac_host_value *v) {
  switch (v->type) {
    case AC_HOST_STRING: lua_pushlstring(L, v->s != NULL ? v->s : "", v->len); break;
    case AC_HOST_TENSOR: lac_push_tensor(L, h->S, v->t); break;
    case AC_HOST_TABLE:
    case AC_HOST_FUNCTION:
    case AC_HOST_OBJECT:
      if (v->ref->h != h)
        lac_error(L, h->S, AC_INVALID,
                  "a table, function or object belongs to another host, or its host was closed");
      lua_rawgeti(L, LUA_REGISTRYINDEX, v->ref->key);
      break;
    default: lua_pushnil(L);
  }
}

static ac_host_type type_at(lua_State *L, int idx) {
  const lac_box *b;
  switch (lua_type(L, idx)) {
    case LUA_TNIL: return AC_HOST_NIL;
    case LUA_TBOOLEAN: return AC_HOST_BOOL;
    case LUA_TNUMBER: return lua_isinteger(L, idx) ? AC_HOST_INT : AC_HOST_NUMBER;
    case LUA_TSTRING: return AC_HOST_STRING;
    case LUA_TTABLE: return AC_HOST_TABLE;
    case LUA_TFUNCTION: return AC_HOST_FUNCTION;
    case LUA_TUSERDATA:
      b = lac_box_test(L, idx);
      return b != NULL && b->t != NULL ? AC_HOST_TENSOR : AC_HOST_OBJECT;
    default: return AC_HOST_OBJECT;
  }
}

/* All but references: allocates nothing. */
static void read_plain(lua_State *L, int idx, ac_host_value *v) {
  v->type = type_at(L, idx);
  switch (v->type) {
    case AC_HOST_BOOL: v->b = lua_toboolean(L, idx); break;
    case AC_HOST_INT: v->i = lua_tointeger(L, idx); break;
    case AC_HOST_NUMBER: v->n = lua_tonumber(L, idx); break;
    case AC_HOST_STRING: v->s = lua_tolstring(L, idx, &v->len); break;
    case AC_HOST_TENSOR: v->t = lac_box_test(L, idx)->t; break;
    default: v->type = AC_HOST_NIL; /* a tensor that a finalizer released meanwhile */
  }
}

static void read_ref(lua_State *L, ac_host *h, int idx, ac_host_value *v) {
  ac_host_ref *r = new_ref(L, h, idx);
  v->type = type_at(L, idx);
  v->ref = r;
}

void lac_value_read_other(lua_State *L, ac_host *h, int idx, ac_host_value *v) {
  read_plain(L, idx, v);
  if (v->type != AC_HOST_NIL || lua_isnil(L, idx)) return;
  read_ref(L, h, idx, v);
}

void lac_values_take(lua_State *L, ac_host *h, int base, int n, ac_host_value *results) {
  for (int i = 0; i < n; i++) results[i] = (ac_host_value){.type = AC_HOST_NIL};
  lua_createtable(L, n, 0); /* strings live until the next call */
  for (int i = 0; i < n; i++) {
    lua_pushvalue(L, base + i);
    lua_rawseti(L, -2, i + 1);
  }
  lua_rawsetp(L, LUA_REGISTRYINDEX, &key_results);
  for (int i = 0; i < n; i++) {
    if (lua_type(L, base + i) <= LUA_TSTRING && !lua_islightuserdata(L, base + i)) continue;
    const ac_host_value v = {.type = type_at(L, base + i)};
    if (lac_value_is_ref(&v)) read_ref(L, h, base + i, &results[i]);
  }
  /* last, when nothing can run the collector and its finalizers any more */
  for (int i = 0; i < n; i++) {
    if (lac_value_is_ref(&results[i])) continue;
    read_plain(L, base + i, &results[i]);
    if (results[i].type == AC_HOST_TENSOR) ac_tensor_retain(results[i].t);
  }
}

void lac_values_drop(int n, ac_host_value *results) {
  for (int i = 0; i < n; i++) ac_host_value_release(&results[i]);
}
