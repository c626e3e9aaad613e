/* When to run Lua's collector because of native memory: it sees handles of a few bytes, not the
 * memory they hold.
 *
 * A full collection comes once results of PER_HEAP times the Lua heap were handed to Lua since the
 * last one, which bounds the possible garbage. Marking takes time in proportion to the heap, making
 * results in proportion to their bytes. Checked before a call makes more, before backward, and at
 * module exits, the end of backward and steps. Bytes are the clock because they are the same on
 * every device: the meta device then predicts the peak. A device that runs out of memory triggers a
 * full collection, an empty cache and one more try. When a recomputed region ends, its handles are
 * garbage: they are the youngest, and go with a young collection. ACCEL_GC=exact: full at every
 * module exit, backward and step. ACCEL_GC=off: only when memory is short. */
#include <string.h>

#include "bindings/core/callback.h"
#include "bindings/core/gc.h"
#include "bindings/core/lac.h"
#include "ops/core/ctx_impl.h"

enum { PER_HEAP = 7 };

/* Up to an eighth more, in steps: the heap differs a little from run to run and device to device,
 * and collections are to come at the same time all the same. */
static size_t coarse(size_t bytes) {
  const size_t step = (size_t)1 << (bytes < 64 ? 3 : 63 - __builtin_clzll(bytes) - 3);
  return (bytes + step - 1) / step * step;
}

static void set_due(lua_State *L, lac_state *S) {
  const size_t count = ((size_t)lua_gc(L, LUA_GCCOUNT) << 10) + 1;
  const size_t heap = coarse(count > S->gc->foreign ? count - S->gc->foreign : 1);
  S->gc->due = S->gc->mode == LAC_GC_AUTO ? heap * PER_HEAP : SIZE_MAX;
}

/* A full collection after which Lua is in generational mode. LUA_GCCOLLECT leaves it in a state
 * that its collector calls bad: the next collection waits until the heap has doubled and is a full
 * one. Memory that finalizers have just released makes that worse, since it counts as alive. A loop
 * of small ops then goes through megabytes of garbage, out of the caches. */
static void collect_all(lua_State *L) {
  if (lua_gc(L, LUA_GCINC, 0, 0, 0) != LUA_GCGEN) {
    lua_gc(L, LUA_GCCOLLECT);
    return;
  }
  lua_gc(L, LUA_GCGEN, 0, 0);
  lua_gc(L, LUA_GCSTEP, 0); /* runs the finalizers */
}

/* Lua's collector is at work, and we are in a finalizer: nothing can be collected now, and the
 * account stands. */
static bool is_finalizing(lua_State *L, const lac_state *S) {
  return S->gc->running || lua_gc(L, LUA_GCCOUNT) < 0;
}

void lac_gc_full(lua_State *L, lac_state *S) {
  if (is_finalizing(L, S)) return;
  /* first: objects that go to finalizers now are for the next collection to find */
  S->gc->charged = 0;
  S->gc->running = true;
  collect_all(L);
  S->gc->running = false;
  S->gc->n_full++;
  set_due(L, S);
}

void lac_gc_young(lua_State *L, lac_state *S) {
  if (S->gc->mode != LAC_GC_AUTO || !S->gc->generational || is_finalizing(L, S)) return;
  S->gc->running = true;
  lua_gc(L, LUA_GCSTEP, 0);
  S->gc->running = false;
}

void lac_gc_check(lua_State *L, lac_state *S) {
  lac_callbacks_drain(L, S);
  if (S->gc->mode == LAC_GC_EXACT) lac_gc_full(L, S);
  else lac_gc_due(L, S);
}

bool lac_gc_oom(lua_State *L, lac_state *S) {
  if (S->gc->running) return false; /* a finalizer asked for memory */
  /* twice: the second pass frees the objects that finalizers of the first one released */
  lac_gc_full(L, S);
  lac_gc_full(L, S);
  if (S->gc->reclaim != NULL) S->gc->reclaim(S);
  for (int i = 0; i < S->ctx->n_devices; i++) ac_pool_trim(S->ctx->device[i]);
  return true;
}

static bool on_oom(void *user) {
  lac_state *S = user;
  return lac_gc_oom(lac_thread(S), S);
}

static int gc_check(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_gc_check(L, S);
  return 0;
}

/* accel.collect(): a full collection now. */
static int collect(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_callbacks_drain(L, S);
  lac_gc_full(L, S);
  lac_callbacks_drain(L, S);
  lac_gc_full(L, S);
  return 0;
}

/* accel.gc_foreign(bytes): this much of the Lua heap is not a part of the run. A dry run uses it to
 * place its collections as a real run does. */
static int gc_foreign(lua_State *L) {
  lac_state *S = lac_get(L);
  const int64_t bytes = lac_check_int(L, S, 1, "bytes");
  S->gc->foreign = bytes > 0 ? (size_t)bytes : 0;
  set_due(L, S);
  return 0;
}

/* accel.gc_phase(share): sets the account to this share (0 to 1) of the next collection's
 * threshold. A dry run then has the collections of each step at different moments, since a long run
 * has them at all moments. */
static int gc_phase(lua_State *L) {
  lac_state *S = lac_get(L);
  const double share = lac_check_number(L, S, 1, "share");
  if (S->gc->due != SIZE_MAX && share >= 0 && share <= 1)
    S->gc->charged = (size_t)(share * (double)S->gc->due);
  return 0;
}

static int gc_stats(lua_State *L) {
  static const char *const modes[] = {"auto", "exact", "off"};
  const lac_state *S = lac_get(L);
  lua_createtable(L, 0, 4);
  lua_pushinteger(L, (lua_Integer)S->gc->n_full);
  lua_setfield(L, -2, "full");
  lua_pushboolean(L, S->gc->generational);
  lua_setfield(L, -2, "generational");
  lua_pushstring(L, modes[S->gc->mode]);
  lua_setfield(L, -2, "mode");
  return 1;
}

void lac_gc_init(lua_State *L, lac_state *S) {
  S->gc = lac_state_part(L, sizeof *S->gc);
  const char *mode = ac_params_str(ac_ctx_params(S->ctx), "GC");
  S->gc->mode = strcmp(mode, "exact") == 0 ? LAC_GC_EXACT
                : strcmp(mode, "off") == 0 ? LAC_GC_OFF
                                           : LAC_GC_AUTO;
  set_due(L, S);
  S->ctx->on_oom = on_oom;
  S->ctx->oom_user = S;
}

LAC_OPEN("accel", gc) {
  static const luaL_Reg funcs[] = {{"gc_check", gc_check},     {"collect", collect},
                                   {"gc_foreign", gc_foreign}, {"gc_phase", gc_phase},
                                   {"gc_stats", gc_stats},     {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}
