/* Life of nodes, leaves and hooks, and the gradient fields of tensors. */
#include "autograd/node.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "accel/ops.h"
#include "ops/core/fuse.h"
#include "tensor/format.h"

/* Freeing a node may free tensors that hold the next node: deep graphs are unwound by this list
 * instead of the C stack. */
/* one load, no call */
static _Thread_local __attribute__((tls_model("initial-exec"))) ac_node *pending;
static _Thread_local __attribute__((tls_model("initial-exec"))) bool unwinding;

void aci_node_retain(ac_node *n) { atomic_fetch_add_explicit(&n->ref, 1, memory_order_relaxed); }

static void hook_free(aci_hook *h) {
  if (h->free_fn != NULL) h->free_fn(h->user);
  free(h);
}

static void destroy(ac_node *n) {
  for (aci_hook *h = n->hooks, *next; h != NULL; h = next) {
    next = h->next;
    hook_free(h);
  }
  for (aci_retained_grad *k = n->retained_grads, *next; k != NULL; k = next) {
    next = k->next;
    free(k);
  }
  for (int i = 0; i < n->n_edges; i++)
    if (n->edge[i].node != NULL) aci_node_release(n->edge[i].node);
  n->cls->free(n);
}

void aci_node_release(ac_node *n) {
  if (n == NULL || !aci_unref(&n->ref)) return;
  n->seq = (uint64_t)(uintptr_t)pending; /* a dead node's seq links the list */
  pending = n;
  if (unwinding) return;
  unwinding = true;
  while (pending != NULL) {
    ac_node *d = pending;
    pending = (ac_node *)(uintptr_t)d->seq;
    destroy(d);
  }
  unwinding = false;
}

/* ---- leaves ---- */
static ac_status acc_apply(ac_node *n, ac_ctx *c, ac_tensor *const *dout, ac_tensor **din,
                           bool create_graph, ac_err *e) {
  aci_acc_node *a = (aci_acc_node *)n;
  (void)din;
  if (a->leaf == NULL || dout[0] == NULL) return AC_OK;
  ac_tensor *leaf = a->leaf;
  if (!(leaf->flags & ACI_T_REQUIRES_GRAD)) return AC_OK; /* frozen since */
  /* a hook may drop the last other reference */
  ac_tensor_retain(leaf);
  ac_status st = aci_accumulate(c, leaf, dout[0], create_graph, e);
  if (__builtin_expect(c->tracer != NULL, 0) && st == AC_OK) c->tracer->leaf(c->tracer->user, leaf);
  if (st == AC_OK) st = aci_run_hooks(n, 0, NULL, leaf, e);
  ac_tensor_release(leaf);
  return st;
}
static void acc_release_saved(ac_node *n) { (void)n; }
static void acc_free(ac_node *n) { free(n); }
const aci_node_class aci_acc_class = {acc_apply, acc_release_saved, acc_free};

ac_status aci_acc_of(ac_tensor *leaf, ac_node **out, ac_err *e) {
  if (leaf->acc == NULL) {
    aci_acc_node *a = calloc(1, sizeof *a);
    if (a == NULL) return AC_FAIL(e, OOM, "no memory for a gradient node");
    a->base.ref = 1;
    a->base.n_out = 1;
    a->base.seq = UINT64_MAX;
    a->base.cls = &aci_acc_class;
    a->base.name = "AccumulateGrad";
    a->leaf = leaf;
    leaf->acc = &a->base;
  }
  *out = leaf->acc;
  return AC_OK;
}

ac_status aci_edge_of(ac_tensor *t, aci_edge *out, ac_err *e) {
  out->node = NULL;
  out->nr = 0;
  if (t->grad_fn != NULL) {
    AC_TRY(aci_check_view(t, e));
    out->node = t->grad_fn;
    out->nr = t->out_nr;
  } else if (t->flags & ACI_T_REQUIRES_GRAD) {
    AC_TRY(aci_acc_of(t, &out->node, e));
  } else {
    return AC_OK;
  }
  aci_node_retain(out->node);
  return AC_OK;
}

ac_status aci_check_view(const ac_tensor *t, ac_err *e) {
  char a[128];
  if (!(t->flags & ACI_T_VIEW) || t->view_version == t->storage->graph_version) return AC_OK;
  return AC_FAIL(
      e, GRAD, "the view %s was taken before its tensor was changed in place; take the view again",
      aci_tensor_str(t, a, sizeof a));
}

ac_status aci_accumulate(ac_ctx *c, ac_tensor *t, ac_tensor *g, bool create_graph, ac_err *e) {
  if (t->flags & ACI_T_GRAD_DUE)
    return AC_FAIL(
        e, GRAD,
        "backward adds to a gradient that clip_grad_norm_ with optimizer left to that optimizer's next step; "
        "call its step or zero_grad first");
  if (t->grad == NULL && t->grad_slot != NULL &&
      t->grad_slot->view != NULL) { /* the owner of the slot decides dtype and place */
    aci_grad_slot *s = t->grad_slot;
    ac_tensor *o = NULL;
    bool was = ac_ctx_set_grad_enabled(c, false);
    ac_status st = s->filled ? ac_add_(c, s->view, ac_operand_tensor(g),
                                       (ac_scalar){.kind = AC_SCALAR_INT, .i = 1}, &o, e)
                             : ac_copy_(c, s->view, g, &o, e);
    ac_ctx_set_grad_enabled(c, was);
    ac_tensor_release(o);
    if (st == AC_OK) s->filled = true;
    return st;
  }
  AC_TRY(aci_fuse_settle(c, g, e)); /* from here on it may be written outside of calls */
  if (t->grad == NULL) {
    /* A gradient to which this is the only reference becomes ->grad unchanged. Others are copied,
     * so that both may be changed in place. */
    bool ours = atomic_load(&g->ref) == 1 && atomic_load(&g->storage->ref) == 1 &&
                ac_tensor_is_contiguous(g) &&
                g->storage->bytes == (size_t)g->numel * aci_dsize((ac_dtype)g->dtype);
    if (ours) {
      ac_tensor_retain(g);
      t->grad = g;
      return AC_OK;
    }
    AC_TRY(ac_clone(c, g, &t->grad, e));
    return aci_fuse_settle(c, t->grad, e);
  }
  ac_tensor *sum = NULL;
  ac_scalar one = {.kind = AC_SCALAR_INT, .i = 1};
  if (create_graph || aci_requires_grad(t->grad)) {
    AC_TRY(ac_add(c, ac_operand_tensor(t->grad), ac_operand_tensor(g), one, &sum, e));
    ac_tensor_release(t->grad);
    t->grad = sum;
    return AC_OK;
  }
  AC_TRY(ac_add_(c, t->grad, ac_operand_tensor(g), one, &sum, e));
  ac_tensor_release(sum);
  return AC_OK;
}

/* ---- tensors ---- */
static aci_retained_grad *retained_grad_unlink(ac_tensor *t) {
  for (aci_retained_grad **k = &t->grad_fn->retained_grads; *k != NULL; k = &(*k)->next)
    if ((*k)->t == t) {
      aci_retained_grad *found = *k;
      *k = found->next;
      return found;
    }
  return NULL;
}

void aci_retained_grad_move(ac_tensor *t, ac_node *to) {
  if (!(t->flags & ACI_T_RETAIN_GRAD) || t->grad_fn == NULL) return;
  aci_retained_grad *k = retained_grad_unlink(t);
  if (k == NULL) return;
  k->next = to->retained_grads;
  to->retained_grads = k;
}

void aci_retained_grad_drop(ac_tensor *t) {
  if (t->flags & ACI_T_RETAIN_GRAD) free(retained_grad_unlink(t));
  t->flags &= (uint8_t)~ACI_T_RETAIN_GRAD;
}

static void drop(ac_tensor *t) {
  if (t->acc != NULL) {
    ((aci_acc_node *)t->acc)->leaf = NULL;
    aci_node_release(t->acc);
  }
  if (t->grad_fn != NULL) {
    aci_retained_grad_drop(t);
    aci_node_release(t->grad_fn);
  }
  if (t->grad_slot != NULL) {
    ac_tensor_release(t->grad_slot->view);
    free(t->grad_slot);
  }
  ac_tensor_release(t->grad);
}

bool ac_tensor_requires_grad(const ac_tensor *t) { return aci_requires_grad(t); }
bool ac_tensor_is_leaf(const ac_tensor *t) { return aci_is_leaf(t); }
ac_tensor *ac_tensor_grad(const ac_tensor *t) {
  return t->grad_slot != NULL && t->grad_slot->filled ? t->grad_slot->view : t->grad;
}
ac_node *ac_tensor_grad_fn(const ac_tensor *t) { return t->grad_fn; }
const char *ac_tensor_grad_fn_name(const ac_tensor *t) {
  return t->grad_fn != NULL ? t->grad_fn->name : NULL;
}

ac_status ac_tensor_set_requires_grad(ac_tensor *t, bool on, ac_err *e) {
  if (t->grad_fn != NULL) {
    if (on) return AC_OK;
    return AC_FAIL(e, GRAD,
                   "requires_grad of a computed tensor (%s) cannot be changed; use detach()",
                   t->grad_fn->name);
  }
  if (on && !aci_has_grad((ac_dtype)t->dtype))
    return AC_FAIL(e, DTYPE, "only floating-point tensors can require gradients, this one is %s",
                   ac_dtype_name((ac_dtype)t->dtype));
  if (on) t->flags |= ACI_T_REQUIRES_GRAD;
  else t->flags &= (uint8_t)~ACI_T_REQUIRES_GRAD;
  return AC_OK;
}

/* Whether t is g, or among g's gradients, their gradients and so on: if t held g, both would live
 * for ever. */
static bool leads_to(const ac_tensor *g, const ac_tensor *t, int depth) {
  if (g == NULL) return false;
  if (g == t || depth == 0) return true;
  return leads_to(g->grad, t, depth - 1) ||
         (g->grad_slot != NULL && leads_to(g->grad_slot->view, t, depth - 1));
}
enum { GRAD_DEPTH = 16 };

ac_status ac_tensor_set_grad(ac_tensor *t, ac_tensor *g, ac_err *e) {
  char a[128], b[128];
  if (g != NULL && t->grad_slot != NULL && g == t->grad_slot->view) { /* it is there */
    ac_tensor_release(t->grad);
    t->grad = NULL;
    t->flags &= (uint8_t)~ACI_T_GRAD_DUE;
    t->grad_slot->filled = true;
    return AC_OK;
  }
  if (g != NULL) {
    if (leads_to(g, t, GRAD_DEPTH))
      return AC_FAIL(e, INVALID, "a tensor cannot be its own gradient");
    if (!aci_same_shape(t, g) || g->dtype != t->dtype || !aci_same_device(g->device, t->device))
      return AC_FAIL(e, SHAPE, "a gradient %s does not fit the tensor %s",
                     aci_tensor_str(g, a, sizeof a), aci_tensor_str(t, b, sizeof b));
    ac_tensor_retain(g);
  }
  ac_tensor_release(t->grad);
  t->grad = g;
  t->flags &= (uint8_t)~ACI_T_GRAD_DUE;
  if (t->grad_slot != NULL) t->grad_slot->filled = false;
  return AC_OK;
}

ac_status ac_tensor_set_grad_slot(ac_tensor *t, ac_tensor *view, ac_err *e) {
  char a[128], b[128];
  if (view != NULL) {
    if (t->grad_fn != NULL || !aci_has_grad((ac_dtype)view->dtype))
      return AC_FAIL(e, GRAD, "a gradient slot is a float tensor for a leaf");
    if (!aci_same_shape(t, view))
      return AC_FAIL(e, SHAPE, "a gradient slot %s does not fit the tensor %s",
                     aci_tensor_str(view, a, sizeof a), aci_tensor_str(t, b, sizeof b));
    if (leads_to(view, t, GRAD_DEPTH))
      return AC_FAIL(e, INVALID, "a tensor cannot be its own gradient slot");
    ac_tensor_retain(view);
    if (t->grad_slot == NULL) t->grad_slot = calloc(1, sizeof *t->grad_slot);
    if (t->grad_slot == NULL) {
      ac_tensor_release(view);
      return AC_FAIL(e, OOM, "no memory for a gradient slot");
    }
  }
  if (t->grad_slot == NULL) return AC_OK;
  if (t->grad_slot->filled) t->flags &= (uint8_t)~ACI_T_GRAD_DUE;
  ac_tensor_release(t->grad_slot->view);
  *t->grad_slot = (aci_grad_slot){.view = view};
  return AC_OK;
}

ac_status ac_tensor_retain_grad(ac_tensor *t, ac_err *e) {
  if (!aci_requires_grad(t))
    return AC_FAIL(e, GRAD, "retain_grad: the tensor does not require gradients");
  if (t->grad_fn == NULL || (t->flags & ACI_T_RETAIN_GRAD)) return AC_OK;
  aci_retained_grad *k = malloc(sizeof *k);
  if (k == NULL) return AC_FAIL(e, OOM, "no memory for retain_grad");
  k->t = t;
  k->next = t->grad_fn->retained_grads;
  t->grad_fn->retained_grads = k;
  t->flags |= ACI_T_RETAIN_GRAD;
  return AC_OK;
}

bool ac_tensor_retains_grad(const ac_tensor *t) { return (t->flags & ACI_T_RETAIN_GRAD) != 0; }

ac_status ac_tensor_set_data(ac_tensor *t, const ac_tensor *src, ac_err *e) {
  char a[128], b[128];
  if (t->grad_fn != NULL)
    return AC_FAIL(e, GRAD,
                   "data of a result of an operation cannot be assigned; copy into it under "
                   "accel.no_grad()");
  if (t->layout != NULL || src->layout != NULL || src->storage == NULL || t->placement != NULL)
    return AC_FAIL(e, INVALID, "data of a quantised or sharded tensor cannot be assigned");
  const bool used = t->acc != NULL || t->grad != NULL || t->grad_slot != NULL;
  const bool same = t->dtype == src->dtype && aci_same_device(t->device, src->device);
  if (!aci_same_shape(t, src) || (used && !same) ||
      ((t->flags & ACI_T_REQUIRES_GRAD) && !ac_dtype_is_float((ac_dtype)src->dtype)))
    return AC_FAIL(e, SHAPE,
                   "data %s does not fit the tensor %s: the shape must be equal, and after a "
                   "backward the dtype and device as well; make a new tensor",
                   aci_tensor_str(src, a, sizeof a), aci_tensor_str(t, b, sizeof b));
  ac_storage_retain(src->storage);
  ac_storage_release(t->storage);
  t->storage = src->storage;
  t->device = src->device;
  t->dtype = src->dtype;
  t->offset = src->offset;
  t->view_version = src->storage->graph_version;
  memcpy(aci_stride_mut(t), src->stride, (size_t)t->ndim * sizeof *t->shape);
  return AC_OK;
}

ac_status ac_tensor_detach(ac_tensor *t, ac_tensor **out, ac_err *e) {
  *out = aci_tensor_detach(t);
  if (*out == NULL) return AC_FAIL(e, OOM, "no memory for a tensor's head");
  return AC_OK;
}

/* ---- hooks ---- */
static _Atomic uint64_t next_id = 1;

static ac_status check_replacement(const ac_tensor *was, const ac_tensor *now, ac_err *e) {
  char a[128], b[128];
  if (aci_same_shape(was, now) && was->dtype == now->dtype && was->device == now->device)
    return AC_OK;
  return AC_FAIL(e, GRAD, "a hook put %s in the place of a gradient %s",
                 aci_tensor_str(now, a, sizeof a), aci_tensor_str(was, b, sizeof b));
}

static ac_status run_hook(aci_hook *h, ac_tensor **g, ac_tensor *leaf, ac_err *e) {
  if (h->post) return h->post_fn(h->user, leaf, e);
  ac_tensor *new = NULL;
  ac_status st = h->fn(h->user, *g, &new, e);
  if (st == AC_OK && new != NULL) st = check_replacement(*g, new, e);
  if (st != AC_OK || new == NULL) {
    ac_tensor_release(new);
    return st;
  }
  ac_tensor_release(*g);
  *g = new;
  return AC_OK;
}

ac_status aci_run_hooks(ac_node *n, int out_nr, ac_tensor **g, ac_tensor *leaf, ac_err *e) {
  ac_status st = AC_OK;
  const uint64_t until = atomic_load(&next_id); /* hooks made by hooks wait for the next time */
  if (n->hooks == NULL) return AC_OK;
  n->hooks_running++;
  for (aci_hook *h = n->hooks; h != NULL && st == AC_OK; h = h->next)
    if (!h->dead && h->id < until && h->post == (leaf != NULL) && h->out_nr == out_nr)
      st = run_hook(h, g, leaf, e);
  if (--n->hooks_running > 0) return st;
  for (aci_hook **h = &n->hooks; *h != NULL;) {
    aci_hook *dead = *h;
    if (!dead->dead) {
      h = &dead->next;
      continue;
    }
    *h = dead->next;
    hook_free(dead);
  }
  return st;
}

static ac_status add_hook(ac_tensor *t, aci_hook proto, uint64_t *id, ac_err *e) {
  ac_node *n = t->grad_fn;
  if (!aci_requires_grad(t))
    return AC_FAIL(e, GRAD, "a hook needs a tensor that requires gradients");
  if (n == NULL) AC_TRY(aci_acc_of(t, &n, e));
  aci_hook *h = malloc(sizeof *h);
  if (h == NULL) return AC_FAIL(e, OOM, "no memory for a hook");
  *h = proto;
  h->next = NULL;
  h->out_nr = t->grad_fn != NULL ? t->out_nr : 0;
  h->id = atomic_fetch_add(&next_id, 1);
  *id = h->id;
  aci_hook **end = &n->hooks;
  while (*end != NULL) end = &(*end)->next;
  *end = h;
  return AC_OK;
}

ac_status ac_tensor_add_hook(ac_tensor *t, ac_grad_hook fn, void *user, void (*free_fn)(void *),
                             uint64_t *id, ac_err *e) {
  return add_hook(t, (aci_hook){.fn = fn, .user = user, .free_fn = free_fn}, id, e);
}

ac_status ac_tensor_add_post_hook(ac_tensor *t, ac_post_hook fn, void *user,
                                  void (*free_fn)(void *), uint64_t *id, ac_err *e) {
  if (t->grad_fn != NULL)
    return AC_FAIL(e, GRAD, "post-accumulate hooks are for leaves; this tensor was computed by %s",
                   t->grad_fn->name);
  return add_hook(t, (aci_hook){.post = true, .post_fn = fn, .user = user, .free_fn = free_fn}, id,
                  e);
}

bool ac_tensor_remove_hook(ac_tensor *t, uint64_t id) {
  ac_node *n = t->grad_fn != NULL ? t->grad_fn : t->acc;
  for (; n != NULL;
       n = n->overwrites ? n->edge[0].node : NULL) /* hooks stay with the value they were put on */
    for (aci_hook **h = &n->hooks; *h != NULL; h = &(*h)->next)
      if ((*h)->id == id && !(*h)->dead) {
        aci_hook *dead = *h;
        dead->dead = true;
        if (n->hooks_running > 0) return true;
        *h = dead->next;
        hook_free(dead);
        return true;
      }
  return false;
}

static const char *grad_name(const ac_tensor *t) { return ac_tensor_grad_fn_name(t); }

static void set_slots(void) {
  aci_tensor_drop_autograd = drop;
  aci_tensor_grad_name = grad_name;
}

void ac_autograd_open(ac_ctx *c) {
  static pthread_once_t once = PTHREAD_ONCE_INIT; /* threads open contexts side by side */
  pthread_once(&once, set_slots);
  c->ag_check = aci_record_check;
  c->ag_record = aci_record;
}
