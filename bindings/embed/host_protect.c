/* The entry of every call into a host's Lua state (lac_host_protect).
 *
 * All code that touches Lua runs in a protected C function, so that no error meets an unprotected
 * state. Data for such a function is in a struct on the C stack. Errors become text with a
 * traceback at the place that raised (lua/traceback.lua), kept in the host, and an ac_err. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/attach/attach.h"
#include "bindings/core/chunk.h"
#include "bindings/comm/dist.h"
#include "host_check.h"
#include "host_value.h"
#include "ops/core/ctx_impl.h"

/* Message handler: keeps the text with the traceback, and passes on the value or a better
 * replacement. Upvalue 1: the host. */
static int on_error(lua_State *L) {
  ac_host *h = lua_touserdata(L, lua_upvalueindex(1));
  lua_settop(L, 1);
  if (h->exited || h->has_text || h->stopped) return 1;
  if (h->S != NULL) lac_site(L, h->S, 1, h->S->ranks->end_site);
  if (h->S != NULL && h->S->ctx != NULL) {
    lac_chunk(L, h->S, "traceback");
    lua_pushvalue(L, 1);
    lua_pushinteger(L, 1);
    lua_call(L, 2, 2);
    if (lua_isstring(L, -1)) lua_copy(L, -1, 1);
    lua_pop(L, 1);
  } else {
    luaL_traceback(L, L, luaL_tolstring(L, 1, NULL), 1);
  }
  const char *text = lua_tostring(L, -1);
  lac_host_set_error(h, text != NULL ? text : "(error without text)");
  lua_settop(L, 1);
  ac_err why;
  const ac_world *w = h->S != NULL ? h->S->ranks->world : NULL;
  const bool by_others =
      w != NULL && ac_world_aborted(h->S->ranks->world, &why) && why.rank != ac_world_rank(w);
  if (h->S != NULL && h->S->ctx != NULL && !by_others &&
      (h->S->attach->on_error || ac_params_int(ac_ctx_params(h->S->ctx), "PDB") != 0)) {
    lac_chunk(L, h->S, "repl/attached"); /* the frames are still there */
    lua_getfield(L, -1, "post_mortem");
    lua_pushvalue(L, 1);
    lua_pushstring(L, h->error_text);
    if (lua_pcall(L, 2, 0, 0) != LUA_OK)
      ac_log_write(AC_LOG_WARN, "attach", "no prompt: %s", luaL_tolstring(L, -1, NULL));
    lua_settop(L, 1);
  }
  return 1;
}

typedef struct failure {
  ac_err *e;
  ac_host *h;
  lac_state *S; /* NULL: there is none so far */
  ac_status fallback;
} failure;

/* A field of accel's error object as text, "" if there is none. */
static void copy_field(lua_State *L, const char *name, char *to, size_t n) {
  to[0] = 0;
  lua_pushstring(L, name);
  if (lua_rawget(L, 1) == LUA_TSTRING) snprintf(to, n, "%s", lua_tostring(L, -1));
  lua_pop(L, 1);
}

/* op, device and rank of the error object at index 1. Without a rank it is this process's. */
static void fill_place(lua_State *L, const failure *f) {
  ac_err *e = f->e;
  const ac_world *w = f->S != NULL ? f->S->ranks->world : NULL;
  e->rank = w != NULL ? ac_world_rank(w) : 0;
  if (!lua_istable(L, 1)) return;
  copy_field(L, "op", e->op, sizeof e->op);
  copy_field(L, "device", e->device, sizeof e->device);
  lua_pushliteral(L, "rank");
  if (lua_rawget(L, 1) == LUA_TNUMBER) e->rank = (int)lua_tointeger(L, -1);
  lua_pop(L, 1);
}

/* (error value, failure): code and message into the ac_err. Protected: printing a value may run
 * code. */
static int fill_error(lua_State *L) {
  failure *f = lua_touserdata(L, 2);
  ac_status code = f->fallback;
  if (lua_istable(L, 1)) {
    lua_pushliteral(L, "code");
    if (lua_rawget(L, 1) == LUA_TSTRING) {
      for (int i = 1; i <= AC_STATUS_LAST; i++)
        if (strcmp(lua_tostring(L, -1), ac_status_name((ac_status)i)) == 0) code = (ac_status)i;
    }
    lua_pop(L, 1);
  }
  if (f->S != NULL && f->S->ctx != NULL) {
    lac_chunk(L, f->S, "error_text");
    lua_pushvalue(L, 1);
    lua_call(L, 1, 2);
    f->h->refused = lua_toboolean(L, -1);
    lua_pop(L, 1);
  } else {
    luaL_tolstring(L, 1, NULL);
  }
  f->fallback = ac_err_set(f->e, code, __FILE__, __LINE__, "%s", lua_tostring(L, -1));
  if (f->e != NULL) fill_place(L, f);
  return 0;
}

bool lac_host_is_running(const ac_host *h) {
  enum { LEAST = 1024 }; /* bytes of the frames between a call of the host and one within it */
  return h->depth > 0 && (uintptr_t)__builtin_frame_address(0) + LEAST < h->frame;
}

static int do_nothing(lua_State *L) {
  (void)L;
  return 0;
}

/* A call was left by a longjmp or a C++ exception of the program: its frames are still on Lua's
 * stack, and count against its limit. Closes their variables, and resets the thread. Lua's public
 * functions reset the count of C calls only when a thread is resumed. */
static void forget_lost_call(ac_host *h) {
  int n = 0;
  if (h->S != NULL) {
    h->S->now = NULL;
    h->S->attach->running = NULL;
  }
#if LUA_VERSION_RELEASE_NUM >= 50406
  lua_closethread(h->L, NULL);
#else
  lua_resetthread(h->L);
#endif
  lua_settop(h->L, 0);
  lua_pushcfunction(h->L, do_nothing);
  lua_resume(h->L, NULL, 0, &n);
  lua_settop(h->L, 0);
  lac_push_upvalues(h->L);
}

/* A host serves one thread at a time. A second thread gets an error instead of a torn Lua state. */
static ac_status enter(ac_host *h, ac_err *e) {
  uintptr_t none = 0, self = (uintptr_t)pthread_self();
  if (!atomic_compare_exchange_strong(&h->thread, &none, self) && none != self)
    return AC_FAIL(
        e, INVALID,
        "another thread is running this host; use one host per thread, or a lock around it");
  if (!lac_host_is_running(h)) {
    const bool lost = h->depth > 0;
    h->depth = 0;
    h->frame = (uintptr_t)__builtin_frame_address(0);
    if (lost) forget_lost_call(h);
    lac_host_begin(h);
  }
  h->depth++;
  return AC_OK;
}

static ac_status leave(ac_host *h, ac_status st, ac_err *e) {
  if (h->depth > 0 && --h->depth > 0) return st;
  if (h->closed_inside && st == AC_OK)
    st = AC_FAIL(
        e, INVALID,
        "a function of the host called ac_host_close while a script ran; close the host after the call returns");
  h->closed_inside = false;
  if (h->stopped) lac_host_unstop(h);
  atomic_store(&h->thread, 0);
  return st;
}

static ac_status protect(ac_host *h, lua_CFunction body, void *arg, ac_err *e) {
  lua_State *L = h->L;
  int saved = errno, top = lua_gettop(L);
  lac_host_set_error(h, NULL);
  h->exited = false;
  h->refused = false;
  if (!lua_checkstack(L, 10)) return AC_FAIL(e, STATE, "the Lua stack is full");
  ac_status st = AC_OK;
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, h) != LUA_TFUNCTION) {
    lua_settop(L, top);
    return AC_FAIL(
        e, INVALID,
        "the registry of this host's Lua state was cleared; close the host, and leave the registry to its libraries");
  }
  lua_pushcfunction(L, body);
  lua_pushlightuserdata(L, arg);
  int result = lua_pcall(L, 1, 0, top + 1);
  if (h->stopped) { /* whatever the script made of the error */
    st = ac_err_set(e, AC_INTERRUPTED, __FILE__, __LINE__, "%s", h->stop_text);
    if (h->error_text == NULL) lac_host_set_error(h, h->stop_text);
    h->exited = false;
  } else if (result == LUA_ERRMEM && h->o.lua_memory != 0) {
    st = AC_FAIL(e, OOM, "out of memory: Lua's heap reached its limit of %zu bytes (lua_memory)",
                 h->o.lua_memory);
    lac_host_set_error(h, e != NULL ? e->msg : "out of memory");
  } else if (result != LUA_OK && !h->exited) {
    failure f = {e, h, h->S, result == LUA_ERRMEM ? AC_OOM : AC_CALLBACK};
    lua_pushcfunction(L, fill_error);
    lua_insert(L, -2);
    lua_pushlightuserdata(L, &f);
    const int printed = lua_pcall(L, 2, 0, 0);
    if (printed == LUA_ERRMEM) f.fallback = AC_FAIL(e, OOM, "out of memory");
    else if (printed != LUA_OK)
      f.fallback = AC_FAIL(e, CALLBACK, "an error that cannot be printed");
    st = f.fallback;
    if (h->error_text == NULL) lac_host_set_error(h, e != NULL ? e->msg : "out of memory");
  }
  lua_settop(L, top);
  if (h->S != NULL) {
    h->S->now = NULL;
    lac_forget_error(L, h->S);
  }
  errno = saved;
  return st;
}

ac_status lac_host_protect(ac_host *h, lua_CFunction body, void *arg, ac_err *e) {
  if (h->S != NULL && h->S->ctx != NULL) AC_TRY(aci_ctx_usable(h->S->ctx, e));
  AC_TRY(enter(h, e));
  if (atomic_load_explicit(&h->has_dead, memory_order_relaxed)) lac_refs_drain(h);
  ac_status st;
  if (__builtin_expect(lac_output_is_taken(h), 0)) {
    const aci_log_sink was = lac_output_begin(h);
    st = protect(h, body, arg, e);
    lac_output_end(h, was);
  } else {
    st = protect(h, body, arg, e);
  }
  st = leave(h, st, e);
  /* it was its own */
  if (h->S != NULL && h->S->ctx != NULL && atomic_load(&aci_fault_pending))
    st = aci_ctx_usable(h->S->ctx, e);
  return st;
}

/* A function of Lua because it allocates, and may fail. */
int lac_host_handler(lua_State *L) {
  lua_pushvalue(L, 1);
  lua_pushcclosure(L, on_error, 1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, lua_touserdata(L, 1));
  return 0;
}

const char *ac_host_error_text(const ac_host *h) {
  return lac_host_is_open(h) && h->error_text != NULL ? h->error_text : "";
}

bool ac_host_refused(const ac_host *h) { return lac_host_is_open(h) && h->refused; }
