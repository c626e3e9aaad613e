/* Boxes, the handles of tensors in Lua: box.c. */
#ifndef LAC_BOX_H
#define LAC_BOX_H
#include "bindings/core/state.h"
#include "tensor/tensor_impl.h"

/* A tensor's handle in Lua. t NULL: not filled yet, or released. */
typedef struct lac_box {
  /* &lac_box_magic: identifies a box among userdata without reading the metatable */
  const void *magic;
  ac_tensor *t;
  union {
    uint32_t leaf; /* while t is held: this is the one box of its leaf */
    uint32_t site; /* after the release: its line, see lac_site_here */
  };
  uint32_t slot; /* in S->slots until the release. 0: made after the state closed */
} lac_box;
extern const char lac_box_magic;

/* An open scope: a table with weak keys in the registry, by this address, holds the boxes born in
 * it. It is separate from the userdata that represents it: Lua skips finalizers if its C stack is
 * full, and then nothing may point into the collector's memory. */
typedef struct lac_scope {
  struct lac_scope *outer;
} lac_scope;

/* A state's part. */
typedef struct lac_boxes {
  int64_t n_live; /* boxes that hold a tensor */
  /* the boxes' references, a second time: a tensor, 0 for an unfilled box, or 2 * next free slot +
   * 1 */
  uintptr_t *slots;
  uint32_t n_slots, free_slot;
  lac_scope *scope; /* innermost open one */
} lac_boxes;

void lac_box_open(lua_State *L, lac_state *S); /* fills the metatable */
/* Pushes an empty box. The metatable comes from upvalue 1 (box_push) or the registry (box_new). */
lac_box *lac_box_push(lua_State *L, lac_state *S);
lac_box *lac_box_new(lua_State *L, lac_state *S);
/* Hands an owned reference to an empty box. Never raises. */
void lac_box_fill(lac_state *S, lac_box *b, ac_tensor *t);
/* Pushes t (borrowed). NULL pushes nil. Leaves that require grad get their one box. */
void lac_push_tensor(lua_State *L, lac_state *S, ac_tensor *t);
/* Makes the box at idx the one box of its leaf. */
void lac_box_canonical(lua_State *L, lac_state *S, int idx);
/* Releases the box's reference. where: the line for later errors. */
void lac_box_release(lua_State *L, lac_state *S, lac_box *b, uint32_t site);
/* The boxes at these places change tensors. */
void lac_box_swap(lua_State *L, lac_state *S, int a, int b);
/* The value on top of the stack, a box, belongs to s. */
void lac_scope_add(lua_State *L, lac_scope *s);
/* NULL when the value at idx is not a box. A released one has ->t NULL. */
static inline lac_box *lac_box_test(lua_State *L, int idx) {
  lac_box *b = lua_touserdata(L, idx);
  /* a light userdata, whose address means nothing, has no length */
  return b != NULL && lua_rawlen(L, idx) >= sizeof(lac_box) && b->magic == &lac_box_magic ? b
                                                                                          : NULL;
}

#endif
