/* The backward engine: walks the nodes reachable from the outputs in descending order of their
 * making, on the calling thread.
 *
 * Callers    Only the thread that owns the context. Runs nest: a hook, a recomputation or a second
 *            derivative may start another one. Each run therefore keeps its own table node ->
 *            (gradients so far, arrivals expected), and several graphs, or parts of one, are walked
 *            independently.
 * Order      Descending seq is a topological order, so every gradient of a node has arrived when
 *            its turn comes. Leaves have no seq: a leaf runs when its last edge of this run has
 *            been served (waits is 0). Each node runs at most once (done).
 * Ownership  The run retains every node in its table until it ends. An entry owns its gradients
 *            until serve() releases them. The results got[] belong to the caller.
 * Failure    The first error stops the walk. All gradients are released and got[] is all NULL, but
 *            leaves that were already served keep what they accumulated. Grad mode, autocast,
 *            only_inputs and in_backward are restored on every path. */
#include <stdlib.h>
#include <string.h>

#include "accel/ops.h"
#include "autograd/anomaly.h"
#include "autograd/deferred.h"
#include "autograd/op_node.h"
#include "base/small.h"
#include "ops/core/fuse.h"

typedef struct entry {
  ac_node *n;
  ac_tensor **g; /* per output, owned. NULL: nothing yet */
  int32_t waits; /* edges into this node not yet served */
  bool needed;   /* leads to an input that was asked for */
  bool wanted;   /* is one */
  bool done;
  ac_tensor **kept; /* of a deferred node that runs now: the tensors its first part kept */
} entry;

enum { SMALL_MAP = 64 }; /* a graph of half as many nodes needs no memory for its table */

typedef struct run {
  ac_ctx *c;
  bool create_graph, retain_graph;
  bool within; /* nodes before the inputs do not belong to this run */
  entry **map; /* open addressing by node address */
  uint32_t mask;
  entry **order; /* every entry, then sorted */
  int n, cap;
  entry *small_map[SMALL_MAP], *small_order[SMALL_MAP / 2];
  /* captures */
  int n_inputs;
  aci_edge *want;
  ac_tensor **got;
  ac_deferred *deferred; /* NULL: nothing is put off */
  aci_fuse *fuse;        /* NULL: no node was recorded in a region of accel.compile */
  uint32_t region;       /* of the node served last */
} run;

/* Edges of n that take no part in this run. */
static uint64_t shut_edges(const run *r, const ac_node *n) {
  return __builtin_expect(r->deferred == NULL, 1) ? 0 : aci_deferred_shut(r->deferred, n);
}

static bool is_shut(uint64_t shut, int k) { return k < ACI_SPLIT_EDGES && (shut >> k & 1) != 0; }

static uint32_t hash_ptr(const void *p) { return (uint32_t)(((uintptr_t)p >> 4) * 2654435761u); }

static entry *find(const run *r, const ac_node *n) {
  for (uint32_t i = hash_ptr(n) & r->mask; r->map[i] != NULL; i = (i + 1) & r->mask)
    if (r->map[i]->n == n) return r->map[i];
  return NULL;
}

static void run_free(run *r) {
  if (r->map != r->small_map) free(r->map);
  if (r->order != r->small_order) free(r->order);
}

static ac_status grow(run *r, ac_err *e) {
  uint32_t cap = (r->mask + 1) * 4;
  entry **map = calloc(cap, sizeof *map);
  entry **order = malloc(cap / 2 * sizeof *order);
  if (map == NULL || order == NULL) {
    free(map);
    free(order);
    return AC_FAIL(e, OOM, "no memory for a backward pass");
  }
  memcpy(order, r->order, (size_t)r->n * sizeof *order);
  run_free(r);
  r->order = order;
  r->map = map;
  r->mask = cap - 1;
  r->cap = (int)(cap / 2);
  for (int i = 0; i < r->n; i++) {
    uint32_t p = hash_ptr(r->order[i]->n) & r->mask;
    while (map[p] != NULL) p = (p + 1) & r->mask;
    map[p] = r->order[i];
  }
  return AC_OK;
}

static size_t entry_bytes(const ac_node *n) {
  return sizeof(entry) + (size_t)n->n_out * sizeof(ac_tensor *);
}

static ac_status visit(run *r, ac_node *n, entry **out, ac_err *e) {
  *out = find(r, n);
  if (*out != NULL) return AC_OK;
  if (r->n == r->cap) AC_TRY(grow(r, e));
  entry *t = aci_small_alloc(entry_bytes(n));
  if (t == NULL) return AC_FAIL(e, OOM, "no memory for a backward pass");
  memset(t, 0, entry_bytes(n));
  t->n = n;
  t->g = (ac_tensor **)(t + 1);
  aci_node_retain(n);
  r->order[r->n++] = t;
  uint32_t p = hash_ptr(n) & r->mask;
  while (r->map[p] != NULL) p = (p + 1) & r->mask;
  r->map[p] = t;
  *out = t;
  return AC_OK;
}

static bool is_wanted(const run *r, const ac_node *n) {
  for (int i = 0; i < r->n_inputs; i++)
    if (r->want[i].node == n) return true;
  return false;
}

/* Adds every node that is reachable from those in the table. New entries are appended, so one pass
 * over the growing list visits them all. waits counts the edges of this run that lead to a node,
 * without edges that a deferral has shut. */
static ac_status discover(run *r, ac_err *e) {
  for (int i = 0; i < r->n; i++) {
    ac_node *n = r->order[i]->n;
    if (r->within && is_wanted(r, n)) continue;
    const uint64_t shut = shut_edges(r, n);
    for (int k = 0; k < n->n_edges; k++) {
      if (n->edge[k].node == NULL || is_shut(shut, k)) continue;
      entry *t;
      AC_TRY(visit(r, n->edge[k].node, &t, e));
      t->waits++;
    }
  }
  return AC_OK;
}

static bool is_leaf(const entry *t) { return t->n->n_edges == 0 && t->n->seq == UINT64_MAX; }

static int by_seq_desc(const void *a, const void *b) {
  const entry *x = *(entry *const *)a, *y = *(entry *const *)b;
  bool ax = is_leaf(x), ay = is_leaf(y);
  /* leaves last: they run from arrive(), with their last gradient */
  if (ax != ay) return ax ? 1 : -1;
  return x->n->seq > y->n->seq ? -1 : x->n->seq < y->n->seq;
}

/* Nodes are found nearly in the order in which they run: few are moved, unless a graph is large and
 * wide. */
static void sort(run *r) {
  if (r->n > SMALL_MAP / 2) {
    qsort(r->order, (size_t)r->n, sizeof *r->order, by_seq_desc);
    return;
  }
  for (int i = 1; i < r->n; i++) {
    entry *t = r->order[i];
    int k = i;
    for (; k > 0 && by_seq_desc(&r->order[k - 1], &t) > 0; k--) r->order[k] = r->order[k - 1];
    r->order[k] = t;
  }
}

/* With inputs given, only nodes on a path to one are worth running. order is topological, outputs
 * first: from its end backwards a node's successors are decided before it. */
static void mark_needed(run *r) {
  for (int i = 0; i < r->n; i++) r->order[i]->needed = r->n_inputs == 0;
  if (r->n_inputs == 0) return;
  for (int k = 0; k < r->n_inputs; k++) {
    entry *t = find(r, r->want[k].node);
    if (t != NULL) t->needed = t->wanted = true;
  }
  for (int i = r->n - 1; i >= 0; i--) {
    entry *t = r->order[i];
    for (int k = 0; k < t->n->n_edges && !t->needed; k++) {
      entry *to = t->n->edge[k].node != NULL ? find(r, t->n->edge[k].node) : NULL;
      t->needed |= to != NULL && to->needed;
    }
  }
}

/* Work on the whole gradient of a node before it continues: tensor hooks (which may replace it),
 * ->grad of non-leaves with retain_grad, and the gradients that ac_gradients returns. */
static ac_status run_hooks(run *r, entry *t, ac_err *e) {
  ac_node *n = t->n;
  for (int i = 0; i < n->n_out && n->hooks != NULL; i++)
    if (t->g[i] != NULL) AC_TRY(aci_run_hooks(n, i, &t->g[i], NULL, e));
  for (aci_retained_grad *k = n->retained_grads; k != NULL; k = k->next) {
    ac_tensor *g = t->g[k->t->out_nr];
    if (g != NULL) AC_TRY(aci_accumulate(r->c, k->t, g, r->create_graph, e));
  }
  for (int k = 0; k < r->n_inputs && t->wanted; k++)
    if (r->want[k].node == n && t->g[r->want[k].nr] != NULL) {
      ac_tensor_retain(t->g[r->want[k].nr]);
      r->got[k] = t->g[r->want[k].nr];
    }
  return AC_OK;
}

static ac_status serve(run *r, entry *t, ac_err *e);

/* An edge is served, with or without a gradient. Leaves run with their last one. */
static ac_status arrive(run *r, entry *to, ac_err *e) {
  if (--to->waits == 0 && is_leaf(to)) return serve(r, to, e);
  return AC_OK;
}

/* A hook may meanwhile end or begin recording: every end belongs to a beginning. */
static ac_status apply_traced(const run *r, ac_node *n, ac_tensor *const *g, ac_tensor **din,
                              ac_err *e) {
  const aci_tracer *t = r->c->tracer;
  t->node(t->user, n->name, true);
  const ac_status st = n->cls->apply(n, r->c, g, din, r->create_graph, e);
  if (r->c->tracer == t) t->node(t->user, n->name, false);
  return st;
}

/* Runs one node, whose gradients are complete: hooks, its backward, and the results to the nodes it
 * has edges to. A node that no
 * gradient reached, or that leads to no requested input, does not run, but its edges still count as
 * served: leaves wait for them. t->g is released here. din is owned until it is added to the next
 * node's gradient. */
static ac_status serve(run *r, entry *t, ac_err *e) {
  ac_node *n = t->n;
  ac_status st = AC_OK;
  bool any = false;
  /* hooks and other readers of gradients need them in memory */
  const bool calls_only = n->cls == &aci_op_class && n->hooks == NULL;
  ac_tensor *small[16] = {0}, **din = small;
  const uint64_t shut = shut_edges(r, n);
  if (t->done) return AC_OK;
  t->done = true;
  /* chains stay in theirs, as in the forward */
  if (r->fuse != NULL && n->cls == &aci_op_class && n->fused != r->region) {
    r->region = n->fused;
    st = aci_fuse_compute_all(r->fuse, e);
  }
  for (int i = 0; i < n->n_out; i++) {
    any |= t->g[i] != NULL;
    if (!calls_only && t->g[i] != NULL && st == AC_OK) st = aci_fuse_settle(r->c, t->g[i], e);
  }
  bool leaf = n->cls == &aci_acc_class;
  if (any && t->kept == NULL && st == AC_OK) st = run_hooks(r, t, e); /* not a second time */
  bool work = any && st == AC_OK && t->needed && !(leaf && r->n_inputs > 0);
  if (work && r->n_inputs > 0) { /* an input asked for may have no needed nodes after it */
    bool behind = false;
    for (int k = 0; k < n->n_edges && !behind; k++) {
      entry *to = n->edge[k].node != NULL ? find(r, n->edge[k].node) : NULL;
      behind = to != NULL && to->needed;
    }
    work = behind;
  }
  if (work) {
    if (n->n_edges > 16) din = calloc((size_t)n->n_edges, sizeof *din);
    if (din == NULL) return AC_FAIL(e, OOM, "no memory for a backward pass");
    aci_split split;
    split.shut = 0;
    if (shut != 0) st = aci_deferred_begin(r->deferred, n, t->g, t->kept, &split, e);
    if (st == AC_OK)
      st = __builtin_expect(r->c->tracer != NULL, 0)
               ? apply_traced(r, n, t->g, din, e)
               : n->cls->apply(n, r->c, t->g, din, r->create_graph, e);
    if (shut != 0) aci_deferred_end(n, &split);
    if (__builtin_expect(r->c->anomaly, 0)) st = aci_anomaly_after(r->c, n, din, st, e);
    if (!r->retain_graph && st == AC_OK && (shut == 0 || t->kept != NULL)) n->cls->release_saved(n);
  }
  for (int i = 0; i < n->n_out; i++) {
    ac_tensor_release(t->g[i]);
    t->g[i] = NULL;
  }
  for (int k = 0; k < n->n_edges; k++) {
    if (n->edge[k].node != NULL && st == AC_OK && !is_shut(shut, k)) {
      entry *to = find(r, n->edge[k].node); /* NULL before the inputs of a run `within` */
      if (din[k] != NULL && to != NULL && to->needed) {
        st = aci_gradient_fit(r->c, n, k, &din[k], e);
        if (st == AC_OK) {
          ac_tensor *v = din[k];
          din[k] = NULL;
          st = aci_gradient_add(r->c, &to->g[n->edge[k].nr], v, r->create_graph, e);
        }
      }
      if (st == AC_OK && to != NULL) st = arrive(r, to, e);
    }
    ac_tensor_release(din[k]);
  }
  if (din != small) free(din);
  return st;
}

/* Puts the gradient of one output into the table: g, or ones for a single element, in the output's
 * dtype. */
static ac_status seed(run *r, int output, ac_tensor *t, ac_tensor *g, ac_err *e) {
  char a[128], b[128];
  aci_edge edge = {0};
  entry *to;
  if (!aci_requires_grad(t))
    return AC_FAIL(e, GRAD, "the tensor does not require gradients and has no history");
  ac_tensor *v = NULL;
  if (g == NULL) {
    if (t->numel != 1)
      return AC_FAIL(
          e, GRAD,
          "backward without a gradient needs an output of one element, this one has shape %s",
          aci_shape_str(t->ndim, t->shape, a, sizeof a));
    if (aci_is_complex(t))
      return AC_FAIL(e, GRAD,
                     "backward without a gradient needs a real output, this one is %s; give its "
                     "gradient, or take a real value such as its abs",
                     ac_dtype_name((ac_dtype)t->dtype));
    AC_TRY(ac_ones_like(r->c, t, NULL, NULL, &v, e));
  } else {
    if (g->device != t->device)
      return AC_FAIL(e, DEVICE, "the gradient is on %s, the output on %s", g->device->name,
                     t->device->name);
    if (!aci_same_shape(t, g))
      return AC_FAIL(e, SHAPE, "the gradient has shape %s, the output %s",
                     aci_shape_str(g->ndim, g->shape, a, sizeof a),
                     aci_shape_str(t->ndim, t->shape, b, sizeof b));
    if (g->dtype != t->dtype) AC_TRY(ac_cast(r->c, g, (ac_dtype)t->dtype, &v, e));
    else ac_tensor_retain(v = g);
  }
  if (__builtin_expect(r->c->anomaly_nan, 0)) {
    ac_status ok = aci_anomaly_seed(r->c, v, output, e);
    if (ok != AC_OK) {
      ac_tensor_release(v);
      return ok;
    }
  }
  ac_status st = aci_edge_of(t, &edge, e);
  if (st == AC_OK) st = visit(r, edge.node, &to, e);
  if (st == AC_OK) st = aci_gradient_add(r->c, &to->g[edge.nr], v, r->create_graph, e);
  else ac_tensor_release(v);
  aci_node_release(edge.node);
  return st;
}

/* Begins with the nodes that were put off, each with the gradients that it had. */
static ac_status seed_deferred(run *r, ac_err *e) {
  for (aci_put_off *p = r->deferred->first; p != NULL; p = p->next) {
    entry *t;
    AC_TRY(visit(r, p->n, &t, e));
    for (int i = 0; i < p->n->n_out; i++) {
      t->g[i] = p->g[i];
      p->g[i] = NULL;
    }
    t->kept = p->kept;
  }
  return AC_OK;
}

static ac_status serve_all(run *r, ac_err *e) {
  for (int i = 0; i < r->n; i++) AC_TRY(serve(r, r->order[i], e));
  return AC_OK;
}

/* The same if a part of the graph was recorded in a region of accel.compile: chains of the backward
 * wait as in the forward. */
static ac_status serve_fused(run *r, aci_fuse *z, ac_err *e) {
  int before;
  AC_TRY(aci_fuse_begin_backward(z, &before, e));
  r->fuse = z;
  const ac_status st = serve_all(r, e);
  ac_err other;
  const ac_status end = aci_fuse_end_backward(z, before, st == AC_OK ? e : &other);
  return st == AC_OK ? end : st; /* the first of them */
}

static ac_status walk(run *r, int n_outputs, ac_tensor *const *outputs, ac_tensor *const *grads,
                      ac_err *e) {
  for (int i = 0; i < n_outputs; i++)
    AC_TRY(seed(r, i, outputs[i], grads != NULL ? grads[i] : NULL, e));
  if (n_outputs == 0 && r->deferred != NULL) AC_TRY(seed_deferred(r, e));
  AC_TRY(discover(r, e));
  sort(r);
  mark_needed(r);
  bool fused = false;
  for (int i = 0; i < r->n && !fused; i++) fused = r->order[i]->n->fused != 0;
  if (__builtin_expect(fused && !r->create_graph && r->c->fuse != NULL, 0))
    return serve_fused(r, r->c->fuse, e);
  return serve_all(r, e);
}

/* One backward pass. With inputs: got[i] becomes the gradient of input i (owned, NULL if none came,
 * all NULL on failure), and no leaf's ->grad changes. Gradients are recorded only with
 * create_graph. */
static ac_status engine(ac_ctx *c, int n_outputs, ac_tensor *const *outputs,
                        ac_tensor *const *grads, int n_inputs, ac_tensor *const *inputs,
                        bool within, const ac_backward_options *o, ac_deferred *deferred,
                        ac_tensor **got, ac_err *e) {
  ac_backward_options none = {sizeof none, false, false};
  if (o == NULL) o = &none;
  run r;
  r.c = c;
  r.create_graph = o->create_graph;
  r.retain_graph = o->retain_graph || o->create_graph;
  r.within = within;
  r.deferred = deferred;
  r.fuse = NULL;
  r.region = 0;
  r.map = memset(r.small_map, 0, sizeof r.small_map);
  r.mask = SMALL_MAP - 1;
  r.order = r.small_order;
  r.n = 0;
  r.cap = SMALL_MAP / 2;
  r.n_inputs = n_inputs;
  r.want = NULL;
  r.got = got;
  ac_status st = AC_OK;
  if (e != NULL) e->op[0] = 0;
  if (n_inputs > 0) {
    r.want = calloc((size_t)n_inputs, sizeof *r.want);
    if (r.want == NULL) return AC_FAIL(e, OOM, "no memory for a backward pass");
    for (int i = 0; i < n_inputs; i++) got[i] = NULL;
    for (int i = 0; i < n_inputs && st == AC_OK; i++) {
      if (!aci_requires_grad(inputs[i]))
        st = AC_FAIL(e, GRAD, "input %d does not require gradients", i + 1);
      else st = aci_edge_of(inputs[i], &r.want[i], e);
    }
  }
  bool was = ac_ctx_set_grad_enabled(c, o->create_graph);
  const aci_tracer *tracer = c->in_backward++ == 0 ? c->tracer : NULL;
  if (__builtin_expect(tracer != NULL, 0)) tracer->backward(tracer->user, true);
  const bool only_inputs = c->only_inputs;
  if (!within) c->only_inputs = n_inputs > 0; /* within a call's own graph: as around it */
  bool cast = c->autocast_on;                 /* gradients come in the dtypes of the forward */
  c->autocast_on = false;
  if (st == AC_OK) st = walk(&r, n_outputs, outputs, grads, e);
  c->autocast_on = cast;
  c->only_inputs = only_inputs;
  ac_ctx_set_grad_enabled(c, was);
  st = aci_backward_leave(c, st, e);
  if (__builtin_expect(tracer != NULL, 0) && c->tracer == tracer)
    tracer->backward(tracer->user, false);
  for (int i = 0; i < r.n; i++) {
    entry *t = r.order[i];
    for (int k = 0; k < t->n->n_out; k++) ac_tensor_release(t->g[k]);
    ac_node *n = t->n;
    aci_small_free(t, entry_bytes(n));
    aci_node_release(n);
  }
  for (int i = 0; i < n_inputs; i++) {
    if (r.want != NULL) aci_node_release(r.want[i].node);
    if (st != AC_OK) {
      ac_tensor_release(got[i]);
      got[i] = NULL;
    }
  }
  run_free(&r);
  free(r.want);
  return st;
}

ac_status ac_gradients(ac_ctx *c, int n_outputs, ac_tensor *const *outputs, ac_tensor *const *grads,
                       int n_inputs, ac_tensor *const *inputs, bool allow_unused,
                       const ac_backward_options *o, ac_tensor **out, ac_err *e) {
  AC_TRY(engine(c, n_outputs, outputs, grads, n_inputs, inputs, false, o, NULL, out, e));
  for (int i = 0; !allow_unused && i < n_inputs; i++)
    if (out[i] == NULL) {
      for (int k = 0; k < n_inputs; k++) {
        ac_tensor_release(out[k]);
        out[k] = NULL;
      }
      return AC_FAIL(
          e, GRAD,
          "input %d was not used in making the outputs; pass allow_unused=true to get nil for it",
          i + 1);
    }
  return AC_OK;
}

ac_status aci_gradients_within(ac_ctx *c, int n_outputs, ac_tensor *const *outputs,
                               ac_tensor *const *grads, int n_inputs, ac_tensor *const *inputs,
                               const ac_backward_options *o, ac_tensor **out, ac_err *e) {
  return engine(c, n_outputs, outputs, grads, n_inputs, inputs, true, o, NULL, out, e);
}

static ac_status post_hooks(ac_tensor *leaf, ac_err *e) {
  ac_node *acc = leaf->acc;
  aci_node_retain(acc);
  ac_status st = aci_run_hooks(acc, 0, NULL, leaf, e);
  aci_node_release(acc);
  return st;
}

ac_status ac_backward(ac_ctx *c, int n_outputs, ac_tensor *const *outputs, ac_tensor *const *grads,
                      int n_inputs, ac_tensor *const *inputs, const ac_backward_options *o,
                      ac_err *e) {
  if (n_inputs == 0) return engine(c, n_outputs, outputs, grads, 0, NULL, false, o, NULL, NULL, e);
  ac_tensor **got = calloc((size_t)n_inputs, sizeof *got);
  if (got == NULL) return AC_FAIL(e, OOM, "no memory for a backward pass");
  bool create = o != NULL && o->create_graph;
  c->in_backward++;
  ac_status st = engine(c, n_outputs, outputs, grads, n_inputs, inputs, false, o, NULL, got, e);
  bool was = ac_ctx_set_grad_enabled(c, create);
  for (int i = 0; i < n_inputs; i++) {
    for (int k = 0; k < i && got[i] != NULL; k++)
      if (inputs[k] == inputs[i]) { /* named twice, accumulated once */
        ac_tensor_release(got[i]);
        got[i] = NULL;
      }
    if (st == AC_OK && got[i] != NULL) st = aci_accumulate(c, inputs[i], got[i], create, e);
    if (st == AC_OK && got[i] != NULL && inputs[i]->acc != NULL) st = post_hooks(inputs[i], e);
    ac_tensor_release(got[i]);
  }
  ac_ctx_set_grad_enabled(c, was);
  free(got);
  return aci_backward_leave(c, st, e);
}

ac_status aci_backward_part(ac_ctx *c, int n_outputs, ac_tensor *const *outputs,
                            ac_tensor *const *grads, ac_deferred *deferred, ac_err *e) {
  return engine(c, n_outputs, outputs, grads, 0, NULL, false, NULL, deferred, NULL, e);
}
