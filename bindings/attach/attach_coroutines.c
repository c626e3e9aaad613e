/* Tracks the running coroutine, for threads that read the stack of a script or stop it: Lua reveals
 * it only to the coroutine itself. In hosts, coroutine.resume, wrap and close are ours. They behave
 * as Lua's own, and note the coroutines they resume: a list on the C stack, the innermost first,
 * which a signal handler of this thread may read at any moment, and the innermost one in the host
 * (lac_host_switch), for other threads. */
#include <lualib.h>

#include "attach.h"
#include "bindings/embed/host_impl.h"

/* co runs from here on. */
static void note(lac_state *S, lac_running *r, lua_State *co) {
  *r = (lac_running){co, S->attach->running};
  S->attach->running = r;
  if (S->host != NULL) lac_host_switch(S->host, co);
}

/* L runs again, which resumed it. */
static void end_note(lac_state *S, const lac_running *r, lua_State *L) {
  S->attach->running = r->below;
  if (S->host != NULL) lac_host_switch(S->host, L);
}

/* Closes the variables of co, which may run code of the script: returns co's status, with an error
 * value on top of co. */
static int close_thread(lua_State *L, lac_state *S, lua_State *co) {
  lac_running r;
  note(S, &r, co);
#if LUA_VERSION_RELEASE_NUM >= 50406
  const int status = lua_closethread(co, L);
#else
  const int status = lua_resetthread(co);
#endif
  end_note(S, &r, L);
  return status;
}

/* Resumes co with n_args values on top of L. Returns >= 0: the number of results on top of L. -1:
 * an error value is there. Raises nothing, so that the note is always withdrawn. */
static int resume(lua_State *L, lac_state *S, lua_State *co, int n_args) {
  int n_results = 0;
  lac_running r;
  if (!lua_checkstack(co, n_args)) {
    lua_pushliteral(L, "too many arguments to resume");
    return -1;
  }
  lua_xmove(L, co, n_args);
  note(S, &r, co);
  const int status = lua_resume(co, L, n_args, &n_results);
  end_note(S, &r, L);
  if (status != LUA_OK && status != LUA_YIELD) {
    lua_xmove(co, L, 1);
    return -1;
  }
  if (!lua_checkstack(L, n_results + 1)) {
    lua_pop(co, n_results);
    lua_pushliteral(L, "too many results to resume");
    return -1;
  }
  lua_xmove(co, L, n_results);
  return n_results;
}

/* coroutine.resume(co, ...) */
static int coroutine_resume(lua_State *L) {
  lua_State *co = lua_tothread(L, 1);
  luaL_argexpected(L, co != NULL, 1, "coroutine");
  const int n = resume(L, lua_touserdata(L, LAC_STATE), co, lua_gettop(L) - 1);
  lua_pushboolean(L, n >= 0);
  lua_insert(L, n >= 0 ? -(n + 1) : -2);
  return n >= 0 ? n + 1 : 2;
}

static int call_wrapped(lua_State *L) {
  lac_state *S = lua_touserdata(L, LAC_STATE);
  lua_State *co = lua_tothread(L, lua_upvalueindex(3));
  const int n = resume(L, S, co, lua_gettop(L));
  if (n >= 0) return n;
  int status = lua_status(co);
  /* failed: its variables are closed, which may fail in turn */
  if (status != LUA_OK && status != LUA_YIELD) {
    status = close_thread(L, S, co);
    lua_pop(L, 1);
    lua_xmove(co, L, 1);
  }
  /* with the caller's line before it */
  if (status != LUA_ERRMEM && lua_type(L, -1) == LUA_TSTRING) {
    luaL_where(L, 1);
    lua_insert(L, -2);
    lua_concat(L, 2);
  }
  return lua_error(L);
}

/* coroutine.wrap(f) */
static int coroutine_wrap(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lac_push_upvalues(L);
  lua_State *co = lua_newthread(L);
  lua_pushvalue(L, 1);
  lua_xmove(L, co, 1);
  lua_pushcclosure(L, call_wrapped, 3);
  return 1;
}

/* coroutine.close(co) */
static int coroutine_close(lua_State *L) {
  lua_State *co = lua_tothread(L, 1);
  luaL_argexpected(L, co != NULL, 1, "coroutine");
  lua_Debug ar;
  if (co == L) return luaL_error(L, "cannot close a running coroutine");
  if (lua_status(co) == LUA_OK && lua_getstack(co, 0, &ar))
    return luaL_error(L, "cannot close a normal coroutine");
  const bool closed = close_thread(L, lua_touserdata(L, LAC_STATE), co) == LUA_OK;
  lua_pushboolean(L, closed);
  if (!closed) lua_xmove(co, L, 1);
  return closed ? 1 : 2;
}

void lac_coroutines_open(lua_State *L, lac_state *S) {
  static const luaL_Reg funcs[] = {{"resume", coroutine_resume},
                                   {"wrap", coroutine_wrap},
                                   {"close", coroutine_close},
                                   {NULL, NULL}};
  if (lua_getglobal(L, LUA_COLIBNAME) == LUA_TTABLE) lac_setfuncs(L, S, funcs);
  lua_pop(L, 1);
}
