/* accel.step(): the step boundary, where generators advance, memory is collected and Ctrl-C is served.
 *
 * The host's first interrupt only sets a flag. At the next step it raises an error with code "interrupted"
 * (traceback and all, so that <close> variables run and a pcall may save and leave), or, after
 * accel.on_interrupt("flag"), is left to the script to ask for: accel.interrupted() is true from then on, and
 * gives the signal's number too. Of several ranks on a machine all are interrupted at the same step, two or three after
 * the signal, also those that got none.
 *
 * A step also shows where this rank is, and raises when the world of ranks has come to an end meanwhile. */
#include <signal.h>
#include <string.h>
#include <time.h>

#include "core/lac.h"

static int step(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  if (S->world != NULL) {
    char site[LAC_SITE];
    ac_world_at(S->world, lac_site(L, S, 1, site), S->ctx->step + 1);
    if (ac_world_aborted(S->world, &e)) return lac_raise(L, S, &e);
  }
  lua_State *was = lac_enter(L, S);
  ac_status st = ac_step(S->ctx, &e);
  lac_leave(S, was);
  if (st != AC_OK) return lac_raise(L, S, &e);
  lac_gc_check(L, S);
  return 0;
}

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool many(const lac_state *S) { return S->world != NULL && ac_world_size(S->world) > 1; }

static ac_status on_step(void *user, ac_err *e) {
  lac_state *S = user;
  const int64_t t = now();
  if (S->step_at != 0 && t - S->step_at > atomic_load_explicit(&S->step_long, memory_order_relaxed))
    atomic_store_explicit(&S->step_long, t - S->step_at, memory_order_relaxed);
  S->step_at = t;
  const bool asked = atomic_load_explicit(&S->interrupt, memory_order_relaxed) != 0;
  if (asked) atomic_store_explicit(&S->noticed, true, memory_order_relaxed);
  if (many(S)) { /* ranks stop at the same step, or those that go on would wait for those that stopped */
    if (S->stopped || !ac_world_stop_here(S->world, S->ctx->step, asked)) return AC_OK;
    S->stop_signal = asked ? atomic_load(&S->interrupt) : SIGINT;
  }
  if (S->interrupt_as_flag || !(asked || S->stop_signal != 0)) return AC_OK;
  int signal = atomic_exchange(&S->interrupt, 0);
  if (S->stop_signal != 0) signal = S->stop_signal;
  S->stopped = S->stop_signal != 0;
  S->stop_signal = 0;
  if (signal == 0) return AC_OK;
  return AC_FAIL(e, INTERRUPTED, "interrupted by signal %d", signal);
}

static int interrupted(lua_State *L) {
  lac_state *S = lac_get(L);
  int signal = atomic_load_explicit(&S->interrupt, memory_order_relaxed);
  /* a script that makes steps sees what ranks agreed upon */
  if (many(S) && S->ctx->step > 0) signal = S->stop_signal;
  lua_pushboolean(L, signal != 0);
  if (signal == 0) return 1;
  atomic_store_explicit(&S->noticed, true, memory_order_relaxed);
  lua_pushinteger(L, signal);
  return 2;
}

static int on_interrupt(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *mode = lac_check_string(L, S, 1, "mode", NULL);
  if (strcmp(mode, "flag") != 0 && strcmp(mode, "raise") != 0)
    return lac_argerror(L, S, AC_INVALID, NULL, 1, "mode", "no mode '%s'; there are \"flag\", \"raise\"",
                        mode);
  S->interrupt_as_flag = mode[0] == 'f';
  return 0;
}

static int step_count(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)lac_get(L)->ctx->step);
  return 1;
}

LAC_OPEN("accel", step) {
  static const luaL_Reg funcs[] = {{"step", step},
                                   {"step_count", step_count},
                                   {"interrupted", interrupted},
                                   {"on_interrupt", on_interrupt},
                                   {NULL, NULL}};
  ac_err e;
  lac_setfuncs(L, S, funcs);
  if (aci_ctx_add_step_hook(S->ctx, (aci_step_hook){on_step, S}, &e) != AC_OK) lac_raise(L, S, &e);
}
