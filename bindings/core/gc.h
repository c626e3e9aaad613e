/* Collection because of native memory: gc.c defines when. */
#ifndef LAC_GC_H
#define LAC_GC_H
#include "bindings/core/box.h"

typedef enum lac_gc_mode { LAC_GC_AUTO, LAC_GC_EXACT, LAC_GC_OFF } lac_gc_mode;

/* A state's part. */
typedef struct lac_gc {
  lac_gc_mode mode;
  bool generational; /* the host put Lua into that mode: a GC step is a young collection */
  bool running;
  /* bytes handed to Lua since the last collection, and the number that triggers the next */
  size_t charged, due;
  size_t foreign; /* the part of the Lua heap that does not belong to the run */
  uint64_t n_full;
  /* releases device memory that can be loaded again (offload). NULL: there is none */
  bool (*reclaim)(lac_state *S);
} lac_gc;

void lac_gc_init(lua_State *L, lac_state *S);
void lac_gc_full(lua_State *L, lac_state *S);
/* at the end of a recomputed region, whose handles have just died */
void lac_gc_young(lua_State *L, lac_state *S);
/* Points for collecting results: before a call makes more of them, at module exits, after backward,
 * at steps. */
static inline void lac_gc_due(lua_State *L, lac_state *S) {
  if (__builtin_expect(S->gc->charged >= S->gc->due, 0)) lac_gc_full(L, S);
}
/* the same at module exits, the end of backward and steps: always with ACCEL_GC=exact */
void lac_gc_check(lua_State *L, lac_state *S);
/* frees as much as possible. The caller retries once */
bool lac_gc_oom(lua_State *L, lac_state *S);
/* Calls a core function once more after a collection when device memory was short. */
#define LAC_RETRY(L, S, st, expr)                              \
  do {                                                         \
    (st) = (expr);                                             \
    if ((st) == AC_OOM && lac_gc_oom((L), (S))) (st) = (expr); \
  } while (0)

/* Weight of a new result, so that scripts without modules and steps are collected too. */
static inline void lac_charge(lac_state *S, const ac_tensor *t) {
  if (t->storage == NULL) return;
  /* a result that its own node keeps shares its storage with an alias, a view with its base */
  if (atomic_load_explicit(&t->storage->ref, memory_order_relaxed) == 1 ||
      (t->grad_fn != NULL && !(t->flags & ACI_T_VIEW)))
    S->gc->charged += t->storage->bytes;
}

#endif
