/* accel.step(): the step boundary, at which generators advance, memory is collected and Ctrl-C is
 * served.
 *
 * The host's first interrupt only sets a flag. At the next step it raises an error with code
 * "interrupted", with a traceback, so that <close> variables run and a pcall may save and leave.
 * After accel.on_interrupt("flag") it does not raise: accel.interrupted() is true from then on, and
 * also returns the signal's number. After accel.on_interrupt("requeue") that holds for SIGTERM and
 * SIGUSR1 alone, and others raise. All ranks of a machine are interrupted at the same step, two or
 * three after the signal, including those that got none.
 *
 * A script that its program drives step by step (ac_host_step) yields here.
 *
 * A step also publishes this rank's line, and raises when the world of ranks has ended
 * meanwhile. */
#include <signal.h>
#include <string.h>
#include <time.h>

#include "bindings/attach/attach.h"
#include "bindings/core/gc.h"
#include "bindings/core/lac.h"
#include "bindings/comm/dist.h"
#include "interrupt.h"
#include "ops/core/ctx_impl.h"

static int step(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  if (S->ranks->world != NULL) {
    char site[LAC_SITE];
    ac_world_at(S->ranks->world, lac_site(L, S, 1, site), S->ctx->step + 1);
    if (ac_world_aborted(S->ranks->world, &e)) return lac_raise(L, S, &e);
  }
  lua_State *was = lac_enter(L, S);
  ac_status st = ac_step(S->ctx, &e);
  lac_leave(S, was);
  if (st != AC_OK) return lac_raise(L, S, &e);
  if (S->attach->a != NULL || S->attach->every_step) lac_attach_step(L, S);
  lac_gc_check(L, S);
  if (S->driven == L && lua_isyieldable(L)) { /* ac_host_step returns */
    S->at_step = true;
    return lua_yield(L, 0);
  }
  return 0;
}

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool many(const lac_state *S) {
  return S->ranks->world != NULL && ac_world_size(S->ranks->world) > 1;
}

static ac_status on_step(void *user, ac_err *e) {
  lac_state *S = user;
  const int64_t t = now();
  if (S->interrupt->step_at != 0 &&
      t - S->interrupt->step_at >
          atomic_load_explicit(&S->interrupt->step_long, memory_order_relaxed))
    atomic_store_explicit(&S->interrupt->step_long, t - S->interrupt->step_at,
                          memory_order_relaxed);
  S->interrupt->step_at = t;
  const bool asked = atomic_load_explicit(&S->interrupt->signal, memory_order_relaxed) != 0;
  if (asked) atomic_store_explicit(&S->interrupt->noticed, true, memory_order_relaxed);
  /* ranks stop at the same step, otherwise those that continue would wait for those that stopped */
  if (many(S)) {
    int signal = asked ? atomic_load(&S->interrupt->signal) : 0;
    if (S->interrupt->raised || !ac_world_stop_here(S->ranks->world, S->ctx->step, &signal))
      return AC_OK;
    S->interrupt->agreed = signal;
  }
  int signal =
      S->interrupt->agreed != 0 ? S->interrupt->agreed : atomic_load(&S->interrupt->signal);
  if (signal == 0 || S->interrupt->as_flag ||
      (S->interrupt->requeue && (signal == SIGTERM || signal == SIGUSR1)))
    return AC_OK;
  atomic_store(&S->interrupt->signal, 0);
  S->interrupt->raised = S->interrupt->agreed != 0;
  S->interrupt->agreed = 0;
  return AC_FAIL(e, INTERRUPTED, "interrupted by signal %d", signal);
}

static int interrupted(lua_State *L) {
  lac_state *S = lac_get(L);
  int signal = atomic_load_explicit(&S->interrupt->signal, memory_order_relaxed);
  /* a script that makes steps sees the signal that ranks agreed upon */
  if (many(S) && S->ctx->step > 0) signal = S->interrupt->agreed;
  lua_pushboolean(L, signal != 0);
  if (signal == 0) return 1;
  atomic_store_explicit(&S->interrupt->noticed, true, memory_order_relaxed);
  lua_pushinteger(L, signal);
  return 2;
}

static int on_interrupt(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *mode = lac_check_string(L, S, 1, "mode", NULL);
  if (strcmp(mode, "flag") != 0 && strcmp(mode, "raise") != 0 && strcmp(mode, "requeue") != 0)
    return lac_argerror(L, S, AC_INVALID, NULL, 1, "mode",
                        "no mode '%s'; there are \"flag\", \"raise\", \"requeue\"", mode);
  lua_pushstring(L, S->interrupt->as_flag ? "flag" : S->interrupt->requeue ? "requeue" : "raise");
  S->interrupt->as_flag = mode[0] == 'f';
  S->interrupt->requeue = strcmp(mode, "requeue") == 0;
  return 1;
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
  S->interrupt = lac_state_part(L, sizeof *S->interrupt);
  lac_setfuncs(L, S, funcs);
  if (aci_ctx_add_step_hook(S->ctx, (aci_step_hook){on_step, S}, &e) != AC_OK) lac_raise(L, S, &e);
}
