/* Lua functions that the core calls: hooks, custom gradients, functions of the host.
 *
 * A callback anchors its function in the registry. The core frees callbacks with the graph or the
 * tensor that holds them, possibly inside a finalizer or on another thread. So freeing only moves
 * them to the hub's list, and the next call from Lua unanchors them. The hub outlives the Lua state
 * while callbacks do. A callback runs on the thread whose call led to it. Its error is kept as a
 * value and raised again by lac_raise, so that scripts see their own error objects, with the
 * traceback of the place that raised. */
#include <stdlib.h>

#include "bindings/core/callback.h"
#include "bindings/core/chunk.h"
#include "bindings/core/lac.h"

static lac_hub *hub_new(void) {
  lac_hub *h = calloc(1, sizeof *h);
  if (h != NULL) atomic_store(&h->ref, 1);
  return h;
}

static void free_dead(lac_callback *c) {
  while (c != NULL) {
    lac_callback *next = c->next;
    free(c->extra);
    free(c);
    c = next;
  }
}

static void hub_release(lac_hub *h) {
  if (h == NULL || atomic_fetch_sub(&h->ref, 1) != 1) return;
  free_dead(atomic_exchange(&h->dead, NULL));
  free(h);
}

lac_callback *lac_callback_new(lua_State *L, lac_state *S, int idx) {
  lac_callbacks_drain(L, S);
  lua_pushvalue(L, idx);
  int ref = luaL_ref(L, LUA_REGISTRYINDEX);
  lac_callback *c = calloc(1, sizeof *c);
  if (c == NULL) {
    luaL_unref(L, LUA_REGISTRYINDEX, ref);
    lac_error(L, S, AC_OOM, "no memory for a callback");
    return NULL;
  }
  *c = (lac_callback){.hub = S->hub, .state = S, .ref = ref};
  atomic_fetch_add(&S->hub->ref, 1);
  return c;
}

void lac_callback_free(void *callback) {
  lac_callback *c = callback;
  lac_hub *h = c->hub;
  if (atomic_load(&h->closed)) {
    free(c->extra);
    free(c);
  } else {
    lac_callback *head = atomic_load(&h->dead);
    do c->next = head;
    while (!atomic_compare_exchange_weak(&h->dead, &head, c));
  }
  hub_release(h);
}

void lac_callbacks_drain(lua_State *L, lac_state *S) {
  if (S->hub == NULL || atomic_load_explicit(&S->hub->dead, memory_order_relaxed) == NULL) return;
  lac_callback *list = atomic_exchange(&S->hub->dead, NULL);
  for (lac_callback *c = list; c != NULL; c = c->next) luaL_unref(L, LUA_REGISTRYINDEX, c->ref);
  free_dead(list);
}

/* (error object): the host's text of the frames that raised it, because the frames are gone when
 * the error is reported. The first callback that an error passes has the innermost. */
static int keep_frames(lua_State *L) {
  lua_pushliteral(L, "_frames");
  if (lua_rawget(L, 1) != LUA_TNIL) return 0;
  lua_pushliteral(L, "traceback");
  if (lua_rawget(L, 1) != LUA_TSTRING) return 0; /* an object of the script's own */
  lua_pushliteral(L, "_frames");
  if (lac_state_of(L) == NULL) return 0; /* the registry was cleared */
  lac_chunk(L, lac_state_of(L), "traceback");
  lua_pushvalue(L, 1);
  lua_pushinteger(L, 3); /* past this function and the handler */
  lua_pushboolean(L, true);
  lua_call(L, 3, 1);
  lua_rawset(L, 1);
  return 0;
}

/* Strings get a traceback here. Error objects have one. */
static int on_error(lua_State *L) {
  if (lua_type(L, 1) == LUA_TSTRING) {
    lac_state *S = lac_state_of(L);
    if (S == NULL) return 1;
    ac_err e = {.code = AC_CALLBACK, .rank = -1};
    lac_push_error(L, S, &e, false);
    lua_pushvalue(L, 1);
    lua_setfield(L, -2, "message");
  }
  if (lua_istable(L, -1) && lua_checkstack(L, 8)) {
    lua_pushcfunction(L, keep_frames);
    lua_pushvalue(L, -2);
    if (lua_pcall(L, 1, 0, 0) != LUA_OK) lua_pop(L, 1); /* no memory or stack left for that */
  }
  return 1;
}

/* (error value, lac_state, ac_err): keeps both. Runs protected, since printing the value may run a
 * script's code. */
static int keep_error(lua_State *L) {
  lac_state *S = lua_touserdata(L, 2);
  ac_err *e = lua_touserdata(L, 3);
  ac_err_set(e, AC_CALLBACK, __FILE__, __LINE__, "%s", luaL_tolstring(L, 1, NULL));
  lua_settop(L, 1);
  int ref = luaL_ref(L, LUA_REGISTRYINDEX);
  lac_forget_error(L, S);
  S->errors->pending = ref;
  return 0;
}

ac_status lac_protect(lac_state *S, lua_CFunction body, void *arg, ac_err *e) {
  lua_State *L = lac_thread(S);
  int top = lua_gettop(L);
  if (!lua_checkstack(L, 8)) return AC_FAIL(e, CALLBACK, "stack overflow in a callback");
  lua_pushcfunction(L, on_error);
  lua_pushcfunction(L, body);
  lua_pushlightuserdata(L, arg);
  ac_status st = AC_OK;
  if (lua_pcall(L, 1, 0, top + 1) != LUA_OK) {
    st = AC_FAIL(e, CALLBACK, "error in a callback");
    lua_pushcfunction(L, keep_error);
    lua_insert(L, -2);
    lua_pushlightuserdata(L, S);
    lua_pushlightuserdata(L, e);
    if (lua_pcall(L, 3, 0, 0) != LUA_OK)
      st = AC_FAIL(e, CALLBACK, "error in the error of a callback");
  }
  lua_settop(L, top);
  return st;
}

static void close_hub(lua_State *L, lac_state *S) {
  lac_callbacks_drain(L, S);
  atomic_store(&S->hub->closed, true);
  hub_release(S->hub);
  S->hub = NULL;
}

void lac_callbacks_open(lua_State *L, lac_state *S) {
  S->hub = hub_new();
  if (S->hub == NULL) luaL_error(L, "no memory for accel");
  lac_at_close(S, close_hub);
}
