/* Interruption of a host's script from outside, by signal handlers and other threads, and the
 * budget of instructions (accel/host.h).
 *
 * Lua can be stopped at an instruction, by a hook of the thread (main or coroutine) that runs. The
 * host knows it: coroutine.resume, wrap and close of a host note each change (attach_coroutines.c,
 * by lac_host_switch). The hook stays until the outermost call of the host has ended, and raises at
 * each instruction, so that no pcall, __close or error handler of the script outlives it. While a
 * hook is set from another thread, Lua's allocator frees nothing, so that neither the coroutine nor
 * its frames go away (lac_host_hold).
 *
 * A script cannot be stopped inside a C function. Ops refuse to start (ac_ctx.stop), and the
 * functions of host_strings.c check the flag. Lua calls no hook in a finalizer (__gc). */
#include <lua.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "bindings/comm/dist.h"
#include "host_impl.h"
#include "interrupt.h"
#include "ops/core/ctx_impl.h"

enum { TICK = 100 }; /* instructions that are counted at once */

int64_t lac_host_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- at step boundaries ---- */

bool ac_host_interrupt(ac_host *h, int signal_number) {
  const lac_state *S = h->S;
  atomic_store(&h->S->interrupt->noticed, false);
  atomic_store(&h->S->interrupt->signal, signal_number != 0 ? signal_number : -1);
  return S->interrupt->as_flag || (S->ctx != NULL && S->ctx->step > 0);
}

bool ac_host_requeues(const ac_host *h) { return h->S->interrupt->requeue; }

int ac_host_interrupt_grace(const ac_host *h) {
  if (atomic_load(&h->S->interrupt->noticed)) return 0;
  const int64_t ms = atomic_load(&h->S->interrupt->step_long) / 500000, most = 600000;
  return (int)(ms < 1000 ? 1000 : ms < most ? ms : most);
}

/* ---- at once ---- */

static void set_stop(ac_host *h, lac_stop reason) {
  atomic_store(&h->stop, (int)reason);
  if (h->S != NULL && h->S->ctx != NULL)
    __atomic_store_n(&h->S->ctx->stop, reason == LAC_STOP_ASKED || reason == LAC_STOP_BUDGET,
                     __ATOMIC_RELAXED);
}

/* By the error that Lua raises without memory. Alone among errors it goes past message handlers,
 * which would run inside the hook, where no hook is called: one that loops could not be stopped. */
void lac_host_raise_stop(lua_State *L, ac_host *h) {
  int once = LAC_STOP_ONCE;
  if (atomic_compare_exchange_strong(&h->stop, &once, LAC_STOP_NONE)) {
    ac_err e = {.code = AC_INTERRUPTED, .rank = -1, .msg = "interrupted"};
    lac_raise(L, h->S, &e);
  }
  if (!h->stopped) {
    char why[80] = "interrupted", site[LAC_SITE];
    if (atomic_load(&h->stop) == LAC_STOP_BUDGET)
      snprintf(why, sizeof why, "interrupted: the script used its %llu instructions",
               (unsigned long long)h->instructions);
    lac_site(L, h->S, 0, site);
    snprintf(h->stop_text, sizeof h->stop_text, "%s%s%s", site, site[0] != 0 ? ": " : "", why);
    h->stopped = true;
    luaL_traceback(L, L, h->stop_text, 0);
    lac_host_set_error(h, lua_tostring(L, -1));
    lua_pop(L, 1);
  }
  lua_pushliteral(L, "not enough memory");
  lua_error(L);
}

static void hook(lua_State *L, lua_Debug *ar);

void lac_host_rehook(lua_State *L) {
  const lac_state *S = lac_state_of(L);
  const ac_host *h = S != NULL ? S->host : NULL;
  if (h != NULL && (h->instructions != 0 || h->deadline != 0))
    lua_sethook(L, hook, LUA_MASKCOUNT, TICK);
  else lua_sethook(L, NULL, 0, 0);
  /* looked at last: another thread sets the flag before it sets the hook that was removed here */
  if (h != NULL && atomic_load(&h->stop) != LAC_STOP_NONE) lua_sethook(L, hook, LUA_MASKCOUNT, 1);
}

static void hook(lua_State *L, lua_Debug *ar) {
  (void)ar;
  const lac_state *S = lac_state_of(L);
  ac_host *h = S != NULL ? S->host : NULL;
  if (h == NULL) luaL_error(L, "interrupted"); /* the registry was cleared */
  if (atomic_load(&h->stop) == LAC_STOP_NONE) {
    /* this thread was hooked for a stop that is over, or one within a script that has time */
    if ((h->instructions == 0 && h->deadline == 0) || lua_gethookcount(L) != TICK)
      lac_host_rehook(L);
    h->used += TICK;
    if (h->instructions == 0 || h->used < h->instructions) {
      if (h->deadline != 0 && L == h->driven && lua_isyieldable(L) && lac_host_now() >= h->deadline)
        lua_yield(L, 0);
      return;
    }
    set_stop(h, LAC_STOP_BUDGET);
    lua_sethook(L, hook, LUA_MASKCOUNT, 1);
    lua_sethook(h->L, hook, LUA_MASKCOUNT, 1);
  }
  lac_host_raise_stop(L, h);
}

void lac_host_watch(ac_host *h, lua_State *co) {
  if (atomic_load(&h->stop) != LAC_STOP_NONE) return;
  if (h->instructions != 0 || h->deadline != 0) lua_sethook(co, hook, LUA_MASKCOUNT, TICK);
}

static void interrupt(ac_host *h, lac_stop reason) {
  if (h == NULL) return;
  atomic_fetch_add(&h->held, 1);
  set_stop(h, reason);
  lua_State *now = atomic_load(&h->running);
  lua_sethook(h->L, hook, LUA_MASKCOUNT, 1);
  if (now != NULL && now != h->L) lua_sethook(now, hook, LUA_MASKCOUNT, 1);
  atomic_fetch_sub(&h->held, 1);
}

void ac_host_interrupt_now(ac_host *h) { interrupt(h, LAC_STOP_ASKED); }
void ac_host_interrupt_once(ac_host *h) { interrupt(h, LAC_STOP_ONCE); }

void lac_host_hold(ac_host *h) {
  while (atomic_load(&h->held) > 0) sched_yield();
}

/* In this order: the other thread sets the flag first, and then looks at the running thread. One of
 * the two sees the other's. */
void lac_host_switch(ac_host *h, lua_State *L) {
  atomic_store(&h->running, L);
  if (h->instructions != 0) h->used += TICK; /* else short coroutines cost nothing */
  if (atomic_load(&h->stop) != LAC_STOP_NONE) lua_sethook(L, hook, LUA_MASKCOUNT, 1);
}

void lac_host_begin(ac_host *h) {
  h->stopped = false;
  h->used = 0;
  if (atomic_load(&h->running) != h->L) atomic_store(&h->running, h->L);
  if (h->instructions != 0 && atomic_load(&h->stop) == LAC_STOP_NONE)
    lua_sethook(h->L, hook, LUA_MASKCOUNT, TICK);
}

void lac_host_unstop(ac_host *h) {
  lua_sethook(h->L, NULL, 0, 0);
  set_stop(h, LAC_STOP_NONE);
  h->stopped = false;
}
