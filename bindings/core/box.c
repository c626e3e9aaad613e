/* Boxes: userdata that hold one reference to a tensor.
 *
 * A box is made empty with its metatable set, so that an error raised before it is filled costs
 * nothing. __gc, __close and t:release() (lac_tensor.c) are the same: the reference goes once.
 * Leaves that require grad have one box per Lua state, so that parameters serve as table keys. A
 * table with weak values, keyed by the tensor's address, finds it. tensor->ext shows quickly
 * whether a lookup is needed.
 *
 * S->boxes->slots holds the boxes' references a second time, in slots that boxes have from birth.
 * Lua skips a finalizer if the C stack, the Lua stack or memory has no room, and makes no
 * finalizers while a state closes. The remaining references are released from the slots then. */
#include <stdlib.h>

#include "bindings/core/gc.h"
#include "bindings/core/lac.h"

static const char key_leaves;
const char lac_box_magic;

enum { FREE = 1, LEAST_SLOTS = 256 };

/* 0: out of memory, or the state is closed. */
static uint32_t grow(lac_state *S) {
  const size_t old = S->boxes->n_slots, n = old == 0 ? LEAST_SLOTS : 2 * old;
  if (S->ctx == NULL || n > UINT32_MAX) return 0;
  uintptr_t *slots = realloc(S->boxes->slots, n * sizeof *slots);
  if (slots == NULL) return 0;
  if (old == 0) slots[0] = FREE;
  S->boxes->slots = slots;
  S->boxes->n_slots = (uint32_t)n;
  for (size_t i = n - 1; i > 0 && i >= old; i--) {
    slots[i] = 2 * (uintptr_t)S->boxes->free_slot + FREE;
    S->boxes->free_slot = (uint32_t)i;
  }
  return S->boxes->free_slot;
}

void lac_box_fill(lac_state *S, lac_box *b, ac_tensor *t) {
  if (__builtin_expect(b->slot != 0, 1)) S->boxes->slots[b->slot] = (uintptr_t)t;
  b->t = t;
  S->boxes->n_live++;
}

static void free_slot(lac_state *S, uint32_t i) {
  S->boxes->slots[i] = 2 * (uintptr_t)S->boxes->free_slot + FREE;
  S->boxes->free_slot = i;
}

static void slots_close(lua_State *L, lac_state *S) {
  uintptr_t *slots = S->boxes->slots;
  const uint32_t n = S->boxes->n_slots;
  S->boxes->slots = NULL;
  S->boxes->n_slots = S->boxes->free_slot = 0;
  for (uint32_t i = 1; i < n; i++)
    if (!(slots[i] & FREE)) ac_tensor_release((ac_tensor *)slots[i]);
  free(slots);
}

void lac_scope_add(lua_State *L, lac_scope *s) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, s);
  lua_pushvalue(L, -2);
  lua_pushboolean(L, 1);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

/* Without its metatable, which is to come before anything that may raise: __gc gives the slot
 * back. */
static lac_box *new_box(lua_State *L, lac_state *S) {
  lac_box *b = lua_newuserdatauv(L, sizeof *b, 0);
  *b = (lac_box){.magic = NULL};
  uint32_t i = S->boxes->free_slot;
  if (__builtin_expect(i != 0, 1) || (i = grow(S)) != 0) {
    S->boxes->free_slot = (uint32_t)(S->boxes->slots[i] >> 1);
    S->boxes->slots[i] = 0;
  } else if (S->ctx != NULL) {
    luaL_error(L, "not enough memory");
  }
  b->slot = i;
  b->magic = &lac_box_magic;
  return b;
}

static inline void enter_scope(lua_State *L, const lac_state *S) {
  if (__builtin_expect(S->boxes->scope == NULL, 1)) return;
  luaL_checkstack(L, 4, "scope");
  lac_scope_add(L, S->boxes->scope);
}

lac_box *lac_box_push(lua_State *L, lac_state *S) {
  lac_box *b = new_box(L, S);
  lua_pushvalue(L, LAC_META);
  lua_setmetatable(L, -2);
  enter_scope(L, S);
  return b;
}

lac_box *lac_box_new(lua_State *L, lac_state *S) {
  lac_box *b = new_box(L, S);
  lac_push_meta(L);
  lua_setmetatable(L, -2);
  enter_scope(L, S);
  return b;
}

void lac_box_canonical(lua_State *L, lac_state *S, int idx) {
  lac_box *b = lua_touserdata(L, idx);
  idx = lua_absindex(L, idx);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &key_leaves);
  lua_pushvalue(L, idx);
  lua_rawsetp(L, -2, b->t);
  lua_pop(L, 1);
  b->leaf = 1;
  b->t->ext = 1;
}

/* Pushes the one box of a leaf and returns true, or pushes nothing. */
static bool find_leaf(lua_State *L, const ac_tensor *t) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &key_leaves);
  if (lua_rawgetp(L, -1, t) == LUA_TUSERDATA) {
    lua_remove(L, -2);
    return true;
  }
  lua_pop(L, 2);
  return false;
}

void lac_push_tensor(lua_State *L, lac_state *S, ac_tensor *t) {
  if (t == NULL) {
    lua_pushnil(L);
    return;
  }
  luaL_checkstack(L, 4, "too many tensors");
  if (t->ext && find_leaf(L, t)) return;
  /* first: making the box may run a finalizer that gives up the last reference */
  ac_tensor_retain(t);
  lac_box *b = lac_box_new(L, S);
  lac_box_fill(S, b, t);
  lac_charge(S, t); /* who owned it may let go of it first */
  if (t->grad_fn == NULL && (t->flags & ACI_T_REQUIRES_GRAD)) lac_box_canonical(L, S, -1);
}

void lac_box_swap(lua_State *L, lac_state *S, int a, int b) {
  lac_box *x = lua_touserdata(L, a), *y = lua_touserdata(L, b);
  ac_tensor *t = x->t;
  const uint32_t leaf = x->leaf;
  x->t = y->t;
  x->leaf = y->leaf;
  y->t = t;
  y->leaf = leaf;
  if (x->slot != 0) S->boxes->slots[x->slot] = (uintptr_t)x->t;
  if (y->slot != 0) S->boxes->slots[y->slot] = (uintptr_t)y->t;
  if (x->leaf) lac_box_canonical(L, S, a);
  if (y->leaf) lac_box_canonical(L, S, b);
}

void lac_box_release(lua_State *L, lac_state *S, lac_box *b, uint32_t site) {
  ac_tensor *t = b->t;
  if (t == NULL) return;
  const bool leaf = b->leaf;
  b->t = NULL;
  b->site = site;
  if (__builtin_expect(b->slot != 0, 1)) {
    if (__builtin_expect(S->boxes->slots == NULL, 0)) return; /* slots_close was first */
    free_slot(S, b->slot);
    b->slot = 0;
  }
  if (leaf) {
    /* unless the registry was cleared */
    const bool kept = lua_rawgetp(L, LUA_REGISTRYINDEX, &key_leaves) == LUA_TTABLE;
    if (kept) lua_rawgetp(L, -1, t);
    bool mine = kept && lua_touserdata(L, -1) == (void *)b;
    if (kept) lua_pop(L, 1);
    if (mine) {
      lua_pushnil(L);
      lua_rawsetp(L, -2, t);
    }
    lua_pop(L, 1);
  }
  S->boxes->n_live--;
  ac_tensor_release(t);
}

/* ---- metamethods ---- */

static int box_gc(lua_State *L) {
  /* code with the debug library may give our metatable to anything */
  lac_box *b = lac_box_test(L, 1);
  if (b == NULL) return 0;
  lac_state *S = lua_touserdata(L, LAC_STATE);
  if (b->t != NULL) {
    lac_box_release(L, S, b, 0);
  } else if (b->slot != 0 && S->boxes->slots != NULL) { /* never filled */
    free_slot(S, b->slot);
    b->slot = 0;
  }
  return 0;
}

static int box_eq(lua_State *L) {
  const lac_box *a = lac_box_test(L, 1), *b = lac_box_test(L, 2);
  lua_pushboolean(L, a != NULL && b != NULL && (a == b || (a->t != NULL && a->t == b->t)));
  return 1;
}

void lac_box_open(lua_State *L, lac_state *S) {
  S->boxes = lac_state_part(L, sizeof *S->boxes);
  lua_newtable(L);
  lua_newtable(L);
  lua_pushliteral(L, "v");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &key_leaves);

  /* the metatable is locked: scripts can neither strip __gc nor see the insides */
  lac_push_meta(L);
  lua_pushliteral(L, "accel.Tensor");
  lua_setfield(L, -2, "__name");
  lua_pushliteral(L, "accel.Tensor");
  lua_setfield(L, -2, "__metatable");
  lac_pushfunction(L, S, box_gc);
  lua_setfield(L, -2, "__gc");
  lac_pushfunction(L, S, box_eq);
  lua_setfield(L, -2, "__eq");
  lua_pop(L, 1);
  lac_at_close(S, slots_close);
}
