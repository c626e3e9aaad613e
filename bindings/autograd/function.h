/* Declarations shared by the files of accel.Function: the graph node of one call. lac_function.c
 * makes it, function_node.c runs its backward. */
#ifndef LAC_FUNCTION_H
#define LAC_FUNCTION_H
#include "autograd/saved.h"
#include "bindings/core/callback.h"
#include "bindings/core/lac.h"

typedef struct lac_fn_out {
  ac_dtype dtype;
  ac_device *device;
  int ndim;
  int64_t shape[AC_MAX_DIMS];
} lac_fn_out;

/* The part of a callback that needs no Lua: freed on any thread. */
typedef struct lac_fn_node {
  lac_callback *cb; /* anchors {ctx, backward, link} */
  char name[40];
  int n_args, n_in, n_out, n_saved;
  bool materialize; /* zeros instead of nil for missing gradients */
  int running;      /* backward of this node, maybe nested in itself */
  bool release;     /* the last of them to end releases the saved values */
  int *in_arg;      /* argument of each input */
  lac_fn_out *out;
  aci_saved *saved;
  int *saved_out;       /* which result a saved tensor is, or -1 */
  ac_tensor **unpacked; /* while running: the results of hooks */
  ac_node *self;        /* borrowed: the graph node that owns this */
} lac_fn_node;

/* The link in ctx: the node while its backward runs, otherwise NULL. Anchored by the callback. */
typedef struct lac_fn_link {
  lac_fn_node *n;
} lac_fn_link;

void lac_fn_free(void *node);
/* Pushes a new ctx, and registers its class. */
void lac_fn_push_ctx(lua_State *L);
void lac_fn_open_ctx(lua_State *L, lac_state *S);
/* Ties the link on top of the stack to the ctx at idx. Pops it. */
void lac_fn_link_ctx(lua_State *L, int idx);
/* Moves the values that forward saved from ctx into the node. Results are at first .. first + n_out
 * - 1. */
ac_status lac_fn_take_saved(lua_State *L, lac_fn_node *n, int ctx, int first, int n_out, ac_err *e);
/* Is the tensor of box b among those that ctx:mark_dirty ("_dirty") or mark_non_differentiable
 * ("_constant") named? */
bool lac_fn_is_marked(lua_State *L, int ctx, const char *list, const lac_box *b);
void lac_fn_forget_marks(lua_State *L, int ctx); /* ctx lives as long as the graph */
ac_status lac_fn_backward(void *node, ac_ctx *c, int n_out, ac_tensor *const *dout, int n_in,
                          ac_tensor **din, ac_err *e);
void lac_fn_release_saved(void *node);

#endif
