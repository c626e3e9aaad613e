/* accel/autograd.h - gradients: the recorded graph and backward.
 *
 * Calls record nodes. A node holds edges to the nodes of its inputs and the tensors that its
 * gradient rule needs. Graphs are reference counted: any number may be alive, and backward frees
 * saved tensors as it consumes them unless retain_graph. The engine runs on the calling thread and
 * visits the newest nodes first. Callbacks run inside backward: they may call ops, but may not free
 * the tensors they are given. */
#ifndef ACCEL_AUTOGRAD_H
#define ACCEL_AUTOGRAD_H
#include "accel/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ac_node ac_node;

/* Makes this context record. Call once after ac_ctx_new (ac_host_open does). */
AC_API void ac_autograd_open(ac_ctx *c);

AC_API bool ac_tensor_requires_grad(const ac_tensor *t);
AC_API bool ac_tensor_is_leaf(const ac_tensor *t);
/* GRAD for non-leaves, DTYPE for anything but floats. */
AC_API ac_status ac_tensor_set_requires_grad(ac_tensor *t, bool on, ac_err *e);
AC_API ac_tensor *ac_tensor_grad(const ac_tensor *t); /* borrowed. NULL: none */
/* g NULL clears. SHAPE, DTYPE or DEVICE when g does not fit. */
AC_API ac_status ac_tensor_set_grad(ac_tensor *t, ac_tensor *g, ac_err *e);
/* Accumulates gradients of leaf t into view (same shape, any float dtype, for example a view of a
 * bucket) instead of a tensor of their own. The first gradient after ac_tensor_set_grad(t, NULL)
 * overwrites view. view is retained. NULL removes the slot. ac_tensor_grad returns view while it
 * holds a gradient. */
AC_API ac_status ac_tensor_set_grad_slot(ac_tensor *t, ac_tensor *view, ac_err *e);
/* keep ->grad of a non-leaf. GRAD when it needs none */
AC_API ac_status ac_tensor_retain_grad(ac_tensor *t, ac_err *e);
/* Shares the storage, no history. */
AC_API bool ac_tensor_retains_grad(const ac_tensor *t); /* of a tensor that is not a leaf */
/* The leaf t gets the memory and strides of src: it stays the same parameter, and its gradient,
 * hooks and box stay. The shape must be equal, and after a backward the dtype and device as well. A
 * write is not recorded, and saved tensors of t keep the memory that they had. */
AC_API ac_status ac_tensor_set_data(ac_tensor *t, const ac_tensor *src, ac_err *e);
AC_API ac_status ac_tensor_detach(ac_tensor *t, ac_tensor **out, ac_err *e);
/* "mul", "AccumulateGrad", or NULL for tensors without history. */
AC_API const char *ac_tensor_grad_fn_name(const ac_tensor *t);
/* Identity of the recording node, for maps and printing. Borrowed, NULL for leaves. */
AC_API ac_node *ac_tensor_grad_fn(const ac_tensor *t);

/* Accumulates gradients of outputs into ->grad of leaves. grads holds the cotangents. A NULL entry
 * or a NULL list means ones for a one-element output and GRAD otherwise. With n_inputs > 0 only
 * those tensors (leaves or not) receive theirs. */
typedef struct ac_backward_options {
  size_t struct_size;
  bool retain_graph; /* default: create_graph */
  bool create_graph; /* record the backward itself */
} ac_backward_options;
AC_API ac_status ac_backward(ac_ctx *c, int n_outputs, ac_tensor *const *outputs,
                             ac_tensor *const *grads, int n_inputs, ac_tensor *const *inputs,
                             const ac_backward_options *o, ac_err *e);
/* As ac_backward, but returns the gradients and touches no ->grad. They are owned. An input that no
 * gradient reached gets NULL if unused inputs are allowed. */
AC_API ac_status ac_gradients(ac_ctx *c, int n_outputs, ac_tensor *const *outputs,
                              ac_tensor *const *grads, int n_inputs, ac_tensor *const *inputs,
                              bool allow_unused, const ac_backward_options *o, ac_tensor **out,
                              ac_err *e);

/* Backward of outputs in two parts, for schedules that fill the waits of a pipeline (Qi et al.
 * 2023). The first part leaves weight
 * gradients of products (op desc .weights) to the second, for leaves and casts of leaves.
 * Everything else is as in ac_backward, and the sums are identical. Saved tensors that the second
 * part needs stay until then. ac_backward_weights runs once, any time before the weights change.
 * STATE after that. */
typedef struct ac_deferred ac_deferred;
AC_API ac_status ac_backward_inputs(ac_ctx *c, int n_outputs, ac_tensor *const *outputs,
                                    ac_tensor *const *grads, ac_deferred **out, ac_err *e);
AC_API ac_status ac_backward_weights(ac_deferred *d, ac_err *e);
AC_API bool ac_deferred_any(const ac_deferred *d); /* whether there is something to compute */
/* NULL allowed. Deferred work that has not run is lost */
AC_API void ac_deferred_free(ac_deferred *d);

/* Hooks. fn may replace the gradient by storing an owned reference in *replace. free(user) runs
 * when the hook goes. Tensor hooks run when the whole gradient of t is known. On leaves they run
 * before accumulation. */
typedef ac_status (*ac_grad_hook)(void *user, ac_tensor *grad, ac_tensor **replace, ac_err *e);
typedef ac_status (*ac_post_hook)(void *user, ac_tensor *leaf, ac_err *e);
AC_API ac_status ac_tensor_add_hook(ac_tensor *t, ac_grad_hook fn, void *user,
                                    void (*free_fn)(void *), uint64_t *id, ac_err *e);
/* After accumulation into a leaf's ->grad. */
AC_API ac_status ac_tensor_add_post_hook(ac_tensor *t, ac_post_hook fn, void *user,
                                         void (*free_fn)(void *), uint64_t *id, ac_err *e);
AC_API bool ac_tensor_remove_hook(ac_tensor *t, uint64_t id);

/* Runs fn once, when the outermost backward (or ac_gradients) in flight has done its work and
 * before it returns. Nothing is recorded. An error of fn becomes an error of the backward.
 * Callbacks run in the order of queueing, including those that a callback queues. fn does not run
 * if the backward or an earlier callback failed. free(user) is called in every case. STATE when no
 * backward is in flight. */
typedef ac_status (*ac_end_hook)(void *user, ac_err *e);
AC_API ac_status ac_backward_queue(ac_ctx *c, ac_end_hook fn, void *user, void (*free_fn)(void *),
                                   ac_err *e);

/* Saved-tensor hooks. While they are the innermost hooks of a context, recorded calls keep the
 * result of pack instead of the tensor itself. pack runs without recording and must not change t.
 * *packed is freed once, with the graph or as backward consumes it. unpack returns an owned tensor
 * with the shape, dtype and device of the original. The caller owns the struct and must keep it
 * alive and unchanged until it is popped. Packed values may outlive it. */
typedef struct ac_saved_hooks {
  size_t struct_size;
  /* leaves that require gradients are kept as they are, and checked for changes in place */
  bool skip_leaves;
  ac_status (*pack)(void *user, ac_tensor *t, void **packed, ac_err *e);
  ac_status (*unpack)(void *packed, ac_tensor **out, ac_err *e);
  void (*free_packed)(void *packed);
  void *user;
  struct ac_saved_hooks *outer; /* private */
} ac_saved_hooks;
AC_API void ac_saved_hooks_push(ac_ctx *c, ac_saved_hooks *h);
/* removes h at any depth. No effect when it is not installed */
AC_API void ac_saved_hooks_pop(ac_ctx *c, ac_saved_hooks *h);

/* Recompute: a region of the forward whose saved tensors are given up and computed again when
 * backward asks for the first of them.
 *
 *   ac_recompute_new(c, &spec, n, args, &r, e);
 *   ac_recompute_enter(r); ...the region... ac_recompute_leave(r);
 *   ac_recompute_release(r);
 *
 * spec.run repeats the region: ac_recompute_enter(r), the region on the arguments given,
 * ac_recompute_leave(r). Once every needed tensor has been recomputed, the call that recorded the
 * last one fails with CALLBACK (early_stop), and run must pass that failure on. The hooks around
 * the region keep args as saved tensors. */
typedef struct ac_recompute ac_recompute;
typedef struct ac_recompute_spec {
  size_t struct_size;
  /* gradients are on */
  ac_status (*run)(void *user, ac_recompute *r, int n_args, ac_tensor *const *args, ac_err *e);
  void (*free)(void *user); /* (optional) when nothing of the region is needed any more */
  void (*stop)(void *user); /* (optional) the failure that ends run early is about to be made */
  void *user;
  bool early_stop;
  /* saved tensors must have the same number, shapes, dtypes and devices the second time. STATE
   * otherwise */
  bool check;
} ac_recompute_spec;
/* On failure user stays the caller's. */
AC_API ac_status ac_recompute_new(ac_ctx *c, const ac_recompute_spec *spec, int n_args,
                                  ac_tensor *const *args, ac_recompute **out, ac_err *e);
AC_API void ac_recompute_release(ac_recompute *r);
AC_API void ac_recompute_enter(ac_recompute *r);
AC_API void ac_recompute_leave(ac_recompute *r);
/* Did run end because everything was there? Its failure then means nothing. */
AC_API bool ac_recompute_stopped(const ac_recompute *r);

/* Anomaly mode: calls remember the line they came from. Every error in a backward then names op and
 * line, and so does the first NaN. */
typedef struct ac_sites {
  uint32_t (*here)(void *user);                   /* number of the current line. 0: unknown */
  const char *(*text)(void *user, uint32_t site); /* valid until the next call. NULL: unknown */
  void *user;
} ac_sites;
/* owned by the caller, must live as long as c. NULL: lines are unknown */
AC_API void ac_ctx_set_sites(ac_ctx *c, ac_sites *s);
AC_API void ac_ctx_set_anomaly(ac_ctx *c, bool on, bool check_nan);
AC_API bool ac_ctx_anomaly(const ac_ctx *c, bool *check_nan); /* check_nan may be NULL */

/* Callback nodes: custom functions, recompute, sharding. outputs must have no history and require
 * no grad. They get this node as their grad_fn. NULL among the outputs: a result without
 * gradient. */
typedef struct ac_callback_node {
  size_t struct_size;
  const char *name; /* shown as grad_fn. Copied */
  /* douts: one per output, NULL for an output that no gradient reached. Fill dins (owned references
   * or NULL), one per input. */
  ac_status (*backward)(void *user, ac_ctx *c, int n_outputs, ac_tensor *const *douts, int n_inputs,
                        ac_tensor **dins, ac_err *e);
  /* (optional) backward consumed the node without retain_graph */
  void (*release_saved)(void *user);
  void (*free)(void *user); /* (optional) */
  void *user;
} ac_callback_node;
/* Does nothing (and frees user) when grad mode is off or no input requires grad. *recorded is true
 * otherwise. */
AC_API ac_status ac_node_callback(ac_ctx *c, const ac_callback_node *n, int n_inputs,
                                  ac_tensor *const *inputs, int n_outputs,
                                  ac_tensor *const *outputs, bool *recorded, ac_err *e);

#ifdef __cplusplus
}
#endif
#endif
