/* Nodes of the backward graph, private to the autograd stage.
 *
 * A node's edges lead to the nodes of its inputs (NULL: no gradient wanted). Tensors hold the node
 * that made them, nodes hold the nodes before them and the tensors they saved. An output saved by
 * its own node is kept as an alias without history, so that no cycle arises. If a saved tensor is
 * written in place, it gets another history, which may lead to the nodes that saved it. Those nodes
 * can no longer use it and keep such an alias instead. Edges always lead to nodes with a smaller
 * seq, except to accumulation nodes, which have no edges: descending seq is therefore a topological
 * order. */
#ifndef ACI_AUTOGRAD_NODE_H
#define ACI_AUTOGRAD_NODE_H
#include "accel/autograd.h"
#include "ops/core/ctx_impl.h"

typedef struct aci_edge {
  ac_node *node; /* retained */
  int32_t nr;    /* which output of node */
} aci_edge;

/* Required shape, dtype and device of a gradient, also used for saved tensors: one per edge. */
typedef struct aci_meta {
  const int64_t *shape;
  ac_device *device; /* not retained: the context's */
  uint8_t dtype, ndim;
  bool saved;       /* a tensor whose version counts */
  uint32_t version; /* of its storage when saved */
  /* the place in an op's node that keeps the tensor, in the list of all such places
   * (ac_tensor.saved_by). NULL: not in one */
  ac_tensor **slot;
  struct aci_meta *next, **back;
} aci_meta;

typedef struct aci_hook {
  struct aci_hook *next;
  uint64_t id;
  int32_t out_nr;
  bool post; /* after accumulation */
  bool dead; /* removed while hooks of its node were running: freed when they are through */
  ac_grad_hook fn;
  ac_post_hook post_fn;
  void *user;
  void (*free_fn)(void *);
} aci_hook;

/* A non-leaf whose ->grad is kept (retain_grad). t is borrowed. The entry is unlinked when t
 * dies. */
typedef struct aci_retained_grad {
  struct aci_retained_grad *next;
  ac_tensor *t;
} aci_retained_grad;

typedef struct aci_node_class {
  /* dout: n_out gradients or NULL, borrowed. Fills din (owned or NULL), one per edge. Grad mode is
   * set by the engine. */
  ac_status (*apply)(ac_node *n, ac_ctx *c, ac_tensor *const *dout, ac_tensor **din,
                     bool create_graph, ac_err *e);
  void (*release_saved)(ac_node *n);
  void (*free)(ac_node *n); /* everything but edges and hooks, then the memory */
} aci_node_class;

struct ac_node {
  _Atomic int32_t ref;
  int32_t n_edges, n_out;
  int32_t hooks_running;
  /* an op that wrote its first argument: edge[0] leads to the node of the previous value */
  bool overwrites;
  bool saved_freed; /* something was saved and is gone: the node cannot run again */
  uint32_t
      fused; /* the region of accel.compile that it was recorded in (ops/core/fuse.h). 0: none */
  uint32_t site; /* line of the forward call, in anomaly mode. 0: unknown */
  uint64_t seq;
  const aci_node_class *cls;
  const char *name;
  aci_edge *edge;
  aci_meta *meta; /* per edge. NULL in accumulation nodes */
  aci_hook *hooks;
  aci_retained_grad *retained_grads;
  /* while one of two parts of its backward runs: ACI_KEPT tensors that the first keeps for the
   * second */
  ac_tensor **kept;
};

/* Accumulates into a leaf's ->grad (or its slot). */
typedef struct aci_acc_node {
  ac_node base;
  ac_tensor *leaf; /* borrowed: NULL once it died */
} aci_acc_node;

extern const aci_node_class aci_acc_class;

void aci_node_retain(ac_node *n);
void aci_node_release(ac_node *n);
/* The target of t's gradient: its node, or the leaf's accumulation node (made here). node NULL when
 * t needs none. Retained. */
ac_status aci_edge_of(ac_tensor *t, aci_edge *out, ac_err *e);
/* Runs the hooks of one kind that were there when it began: tensor hooks on *g (may be replaced) of
 * output out_nr, or post hooks on leaf. */
ac_status aci_run_hooks(ac_node *n, int out_nr, ac_tensor **g, ac_tensor *leaf, ac_err *e);
/* t was computed anew in place: if retain_grad was asked for, its entry moves from t's old node to
 * `to`. */
void aci_retained_grad_move(ac_tensor *t, ac_node *to);
void aci_retained_grad_drop(ac_tensor *t);
/* The accumulation node of a leaf, made when missing. borrowed. */
ac_status aci_acc_of(ac_tensor *leaf, ac_node **out, ac_err *e);
/* Adds g into t->grad or its slot. Runs nothing else. */
ac_status aci_accumulate(ac_ctx *c, ac_tensor *t, ac_tensor *g, bool create_graph, ac_err *e);
/* Adds v (owned, taken) to a gradient that is being accumulated. The sum goes into its memory if
 * *slot is the only reference to it, nothing is recorded and neither waits. Otherwise it becomes a
 * new tensor. */
ac_status aci_gradient_add(ac_ctx *c, ac_tensor **slot, ac_tensor *v, bool create_graph, ac_err *e);
/* Checks a gradient against the input it is for, casts when the dtype differs. */
ac_status aci_gradient_fit(ac_ctx *c, const ac_node *from, int k, ac_tensor **g, ac_err *e);
/* ac_gradients for a graph that ends at its inputs: nodes beyond them are not visited. */
ac_status aci_gradients_within(ac_ctx *c, int n_outputs, ac_tensor *const *outputs,
                               ac_tensor *const *grads, int n_inputs, ac_tensor *const *inputs,
                               const ac_backward_options *o, ac_tensor **out, ac_err *e);
/* Ends a backward with status st. The outermost one calls the callbacks queued for its end (freed
 * unrun after a failure). */
ac_status aci_backward_leave(ac_ctx *c, ac_status st, ac_err *e);
/* GRAD when t is a view taken before its storage was changed in place inside a graph. */
ac_status aci_check_view(const ac_tensor *t, ac_err *e);

ac_status aci_record(ac_ctx *c, ac_frame *f, ac_err *e);
ac_status aci_record_check(ac_ctx *c, ac_frame *f, ac_err *e);
/* For writers that are not ops (collectives): GRAD when t may not be written in place now ... */
ac_status aci_write_check(const ac_ctx *c, const ac_tensor *t, ac_err *e);
/* ... and after the write: its version rises, and if gradients are on it loses its history. */
void aci_write_done(const ac_ctx *c, ac_tensor *t);

#endif
