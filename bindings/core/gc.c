/* When Lua's collector runs for the sake of native memory: it sees handles of a few bytes, not what they
 * hold.
 *
 * At module exits, the end of backward and at each step (accel.gc_check, all called through lac_gc_check):
 *   - a full collection once results of 48 times the Lua heap were handed to Lua since the last one, which is
 *     what can be garbage at most. Marking costs about 0.25 ns per byte of heap, making a native byte at least
 *     0.1 ns, and training makes a half more than it hands out, so that this stays below 4 % of the time.
 *     Bytes are the clock because they are the same on every device: the meta device then predicts the peak.
 *     Where little lives it comes sooner, after a sixth of that or 12 heaps;
 *   - a full one as well when live bytes stand 10 % + 64 MiB above those after the last one;
 *   - for large Lua heaps, a young collection once 32 MiB were born (generational mode only). Young collections more often than that
 *     make matters worse: what a forward holds across two of them turns old, and only a full one finds it.
 * Scripts without modules and steps are collected when results of 256 MiB were handed to Lua since, and when
 * the Lua heap outgrew what generational mode lets it grow (lac_gc_tick): then that mode is not at work. A device
 * that runs out of memory leads to a full collection, an empty cache and one more try. A large gradient for which the
 * pool would have to grow leads to a full collection if as much was handed to Lua since the last one.
 * ACCEL_GC=exact: full at every check. ACCEL_GC=off: never but when memory is short. */
#include <string.h>

#include "core/lac.h"

enum { YOUNG_MB = 32, FULL_MB = 64, HEAP_MB = 1, HANDED_PER_HEAP = 48, HANDED_LEAST = 12, HANDED_OF_LIVE = 6 };
enum { TICK_KB = 128, LOOK_KB = 64, LOOK_CHECKS = 64 };

static void totals(const lac_state *S, size_t *live, size_t *born) {
  *live = *born = 0;
  for (int i = 0; i < S->ctx->n_devices; i++) {
    ac_mem_stats m;
    ac_mem_stats_get(S->ctx->device[i], &m);
    *live += m.live_bytes;
    *born += m.born_bytes;
  }
}

static size_t heap_bytes(lua_State *L) { return ((size_t)lua_gc(L, LUA_GCCOUNT) << 10) + 1; }

/* Up to an eighth more, in steps: the heap differs a little from run to run and device to device, and collections are to come at the
 * same time all the same. */
static size_t coarse(size_t bytes) {
  const size_t step = (size_t)1 << (bytes < 64 ? 3 : 63 - __builtin_clzll(bytes) - 3);
  return (bytes + step - 1) / step * step;
}

static void after(lua_State *L, lac_state *S, bool full) {
  size_t live;
  totals(S, &live, &S->gc_born);
  if (full) {
    S->gc_heap = heap_bytes(L);
    S->gc_live = live;
  }
}

/* A full collection after which Lua is in generational mode. LUA_GCCOLLECT leaves it in what its collector
 * calls a bad state: the next collection waits until the heap doubled and is a full one. What finalizers just let go
 * makes that worse, since it counts as alive: a loop of small ops then goes through megabytes of garbage, out of the
 * caches. */
static void collect_all(lua_State *L) {
  if (lua_gc(L, LUA_GCINC, 0, 0, 0) != LUA_GCGEN) {
    lua_gc(L, LUA_GCCOLLECT);
    return;
  }
  lua_gc(L, LUA_GCGEN, 0, 0);
  lua_gc(L, LUA_GCSTEP, 0); /* runs the finalizers */
}

/* Lua's collector is at work, and we are in a finalizer: nothing can be collected now, and the account stands. */
static bool is_finalizing(lua_State *L, const lac_state *S) { return S->in_gc || lua_gc(L, LUA_GCCOUNT) < 0; }

void lac_gc_full(lua_State *L, lac_state *S) {
  if (is_finalizing(L, S)) return;
  S->gc_handed = S->gc_charged = 0; /* first: what finalizers are handed now is for the next one to find */
  S->in_gc = true;
  collect_all(L);
  S->in_gc = false;
  lac_slots_reap(S);
  S->n_full++;
  after(L, S, true);
}

/* A step that is asked for never becomes Lua's own full collection, and puts that off: a heap that doubled gets one. */
static void young(lua_State *L, lac_state *S) {
  if (!S->generational) return;
  if (heap_bytes(L) > 2 * S->gc_heap + ((size_t)HEAP_MB << 20)) {
    lac_gc_full(L, S);
    return;
  }
  S->in_gc = true;
  lua_gc(L, LUA_GCSTEP, 0);
  S->in_gc = false;
  S->n_young++;
  after(L, S, false);
}

void lac_gc_young(lua_State *L, lac_state *S) {
  size_t live, born;
  if (S->gc_mode != LAC_GC_AUTO || is_finalizing(L, S)) return;
  totals(S, &live, &born);
  if (born - S->gc_born >= (size_t)1 << 20) young(L, S);
}

void lac_gc_check(lua_State *L, lac_state *S) {
  lac_callbacks_drain(L, S);
  lac_slots_reap(S);
  if (S->gc_mode == LAC_GC_OFF) return;
  if (S->gc_mode == LAC_GC_EXACT) {
    lac_gc_full(L, S);
    return;
  }
  /* nothing much can have become garbage since the last look; what is not charged shows in what lives */
  if (S->gc_charged < (size_t)LOOK_KB << 10 && ++S->gc_passed < LOOK_CHECKS) return;
  if (is_finalizing(L, S)) return;
  S->gc_passed = 0;
  size_t live, born;
  totals(S, &live, &born);
  const size_t heap = coarse(S->gc_heap > 0 ? S->gc_heap : heap_bytes(L));
  S->gc_handed += S->gc_charged;
  S->gc_charged = 0;
  /* small models collect sooner, so that garbage stays small beside them */
  size_t due = S->gc_live / HANDED_OF_LIVE;
  due = due < heap * HANDED_LEAST ? heap * HANDED_LEAST : due > heap * HANDED_PER_HEAP ? heap * HANDED_PER_HEAP : due;
  if (S->gc_handed >= due ||
      live > S->gc_live + S->gc_live / 10 + ((size_t)FULL_MB << 20)) {
    lac_gc_full(L, S);
  } else if (born - S->gc_born >= (size_t)YOUNG_MB << 20) {
    young(L, S);
  }
}

void lac_gc_charged(lua_State *L, lac_state *S) {
  if (is_finalizing(L, S)) return;
  lac_gc_check(L, S);
  S->gc_charged = 0; /* also where nothing is collected now */
}

void lac_gc_tick(lua_State *L, lac_state *S) {
  S->gc_tick = LAC_GC_TICK;
  lac_slots_reap(S);
  lac_sentinel_renew(L, S);
  if (S->gc_mode != LAC_GC_AUTO || !S->generational || is_finalizing(L, S)) return;
  if (heap_bytes(L) > S->gc_heap + S->gc_heap / 8 * 5 + ((size_t)TICK_KB << 10)) lac_gc_full(L, S);
}

bool lac_gc_oom(lua_State *L, lac_state *S) {
  if (S->in_gc) return false; /* a finalizer asked for memory */
  /* twice: what finalizers of the first pass let go is freed by the second */
  lac_gc_full(L, S);
  lac_gc_full(L, S);
  for (int i = 0; i < S->ctx->n_devices; i++) ac_pool_trim(S->ctx->device[i]);
  return true;
}

static bool on_oom(void *user) {
  lac_state *S = user;
  return lac_gc_oom(S->now != NULL ? S->now : S->main, S);
}

/* Memory that is mapped stays, so that the peak of a run is what was once asked for. */
static void on_growth(void *user, size_t bytes) {
  lac_state *S = user;
  if (S->gc_mode == LAC_GC_AUTO && S->gc_handed + S->gc_charged >= bytes) lac_gc_full(S->now != NULL ? S->now : S->main, S);
}

static int gc_check(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_gc_check(L, S);
  lac_sentinel_renew(L, S);
  return 0;
}

/* accel.collect(): a full collection now. */
static int collect(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_callbacks_drain(L, S);
  lac_gc_full(L, S);
  lac_callbacks_drain(L, S);
  lac_gc_full(L, S);
  lac_sentinel_renew(L, S);
  return 0;
}

static int gc_stats(lua_State *L) {
  static const char *const modes[] = {"auto", "exact", "off"};
  const lac_state *S = lac_get(L);
  lua_createtable(L, 0, 4);
  lua_pushinteger(L, (lua_Integer)S->n_young);
  lua_setfield(L, -2, "young");
  lua_pushinteger(L, (lua_Integer)S->n_full);
  lua_setfield(L, -2, "full");
  lua_pushboolean(L, S->generational);
  lua_setfield(L, -2, "generational");
  lua_pushstring(L, modes[S->gc_mode]);
  lua_setfield(L, -2, "mode");
  return 1;
}

void lac_gc_open(lua_State *L, lac_state *S) {
  static const luaL_Reg funcs[] = {
      {"gc_check", gc_check}, {"collect", collect}, {"gc_stats", gc_stats}, {NULL, NULL}};
  const char *mode = ac_params_str(ac_ctx_params(S->ctx), "GC");
  S->gc_mode = strcmp(mode, "exact") == 0 ? LAC_GC_EXACT
               : strcmp(mode, "off") == 0 ? LAC_GC_OFF
                                          : LAC_GC_AUTO;
  S->ctx->on_oom = on_oom;
  S->ctx->on_growth = on_growth;
  S->ctx->oom_user = S;
  lac_setfuncs(L, S, funcs);
}
