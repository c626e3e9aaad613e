/* Step-wise driving: ac_host_start, ac_host_step and ac_host_stop (accel/host.h).
 *
 * The script is a coroutine of the host. accel.step yields from it (lac_step.c, by S->driven), and
 * so does the hook of host_interrupt.c once its time is over. Neither can yield through a C
 * function that called back into Lua, or from a coroutine of the script: the script then runs on
 * until it can. Errors get their traceback inside the coroutine, by the handler of host_protect.c,
 * because its frames are gone when they leave it. */
#include "host_check.h"
#include "host_script.h"

/* ---- the coroutine ---- */

static int script_ended(lua_State *L, int status, lua_KContext ctx) {
  (void)ctx;
  return status == LUA_OK || status == LUA_YIELD ? 0 : lua_error(L);
}

/* (handler, function, arguments ...) */
static int coroutine_body(lua_State *L) {
  const int status = lua_pcallk(L, lua_gettop(L) - 2, 0, 1, 0, script_ended);
  return script_ended(L, status, 0);
}

static void set_driven(lua_State *L, ac_host *h, lua_State *co) {
  h->driven = co;
  h->S->driven = NULL;
  if (co == NULL) {
    lua_pushnil(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &h->driven);
  }
}

static int start_body(lua_State *L) {
  lac_script *s = lua_touserdata(L, 1);
  ac_host *h = s->h;
  lua_State *co = lua_newthread(L);
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &h->driven);
  lac_script_load(L, s);
  luaL_checkstack(L, s->argc + 4, "arguments");
  for (int i = 0; i < s->argc; i++) lua_pushstring(L, s->argv[i]);
  if (!lua_checkstack(co, s->argc + 8)) luaL_error(L, "too many arguments");
  lua_pushcfunction(co, coroutine_body);
  lua_rawgetp(co, LUA_REGISTRYINDEX, h);
  lua_xmove(L, co, s->argc + 1);
  h->driven_args = s->argc + 2;
  set_driven(L, h, co);
  return 0;
}

static ac_status start(ac_host *h, lac_script *s, const char *who, ac_err *e) {
  AC_TRY(lac_host_check_open(h, who, e));
  if (h->driven != NULL)
    return AC_FAIL(e, STATE,
                   "%s: a started script has not ended; call ac_host_step until it has, or "
                   "ac_host_stop",
                   who);
  return lac_script_run(h, s, start_body, who, e);
}

ac_status ac_host_start_file(ac_host *h, const char *path, int argc, const char *const *argv,
                             ac_err *e) {
  HOST_NEEDS(path != NULL, e, "the path is NULL");
  lac_script s = {.h = h, .path = path, .argc = argc, .argv = argv};
  return start(h, &s, __func__, e);
}

ac_status ac_host_start(ac_host *h, const char *code, const char *name, int argc,
                        const char *const *argv, ac_err *e) {
  HOST_NEEDS(code != NULL, e, "the code is NULL");
  lac_script s = {
      .h = h, .code = code, .name = name != NULL ? name : "string", .argc = argc, .argv = argv};
  return start(h, &s, __func__, e);
}

/* ---- steps ---- */

static int step_body(lua_State *L) {
  ac_host *h = lua_touserdata(L, 1);
  lua_State *co = h->driven;
  int n = 0;
  h->S->driven = co;
  h->S->at_step = false;
  lac_host_switch(h, co);
  lac_host_watch(h, co);
  const int status = lua_resume(co, L, h->driven_args, &n);
  lac_host_switch(h, h->L);
  h->deadline = 0;
  h->driven_args = 0;
  h->S->driven = NULL;
  if (status == LUA_YIELD) {
    lua_pop(co, n);
    return 0;
  }
  set_driven(L, h, NULL);
  if (status == LUA_OK) return 0;
  h->has_text = true; /* of the place that raised */
  lua_xmove(co, L, 1);
  return lua_error(L);
}

ac_status ac_host_step(ac_host *h, double seconds, ac_host_progress *progress, ac_err *e) {
  ac_err local;
  if (e == NULL) e = &local;
  if (progress != NULL) *progress = AC_HOST_ENDED;
  AC_TRY(lac_host_check_open(h, __func__, e));
  HOST_NEEDS(seconds >= 0, e, "seconds is %g; expected 0 or more", seconds);
  if (h->driven == NULL)
    return AC_FAIL(e, STATE, "ac_host_step: no script was started; call ac_host_start before");
  if (lac_host_is_running(h))
    return AC_FAIL(e, STATE, "ac_host_step: called by a function that a script of this host runs");
  h->deadline = seconds > 0 && seconds < 1e9 ? lac_host_now() + (int64_t)(seconds * 1e9) : 0;
  const ac_status st = lac_host_protect(h, step_body, h, e);
  h->has_text = false;
  h->deadline = 0;
  if (st != AC_OK) lac_script_tell(h, st, e);
  if (progress != NULL && st == AC_OK && h->driven != NULL)
    *progress = h->S->at_step ? AC_HOST_AT_STEP : AC_HOST_PAUSED;
  return st;
}

/* ---- stopping ---- */

static int stop_body(lua_State *L) {
  ac_host *h = lua_touserdata(L, 1);
  lua_State *co = h->driven;
  lac_host_switch(h, co);
#if LUA_VERSION_RELEASE_NUM >= 50406
  lua_closethread(co, L);
#else
  lua_resetthread(co);
#endif
  lac_host_switch(h, h->L);
  set_driven(L, h, NULL);
  return 0;
}

void ac_host_stop(ac_host *h) {
  ac_err e;
  if (!lac_host_is_open(h) || h->driven == NULL || lac_host_is_running(h)) return;
  lac_host_protect(h, stop_body, h, &e);
  h->driven = NULL;
}
