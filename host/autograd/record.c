/* Recording: called by ac_call after a kernel when gradients are on. Builds the node of the call
 * and hangs it on the outputs. */
#include <stdlib.h>
#include <string.h>

#include "accel/ops.h"
#include "autograd/anomaly.h"
#include "autograd/op_node.h"
#include "autograd/saved.h"
#include "base/small.h"
#include "ops/core/fuse.h"

static size_t pad8(size_t n) { return (n + 7) & ~(size_t)7; }

static bool needs_grad(const ac_value *v) {
  if (v->kind == AC_T_TENSOR) return aci_requires_grad(v->tensor);
  if (v->kind != AC_T_TENSORS) return false;
  for (int j = 0; j < v->n; j++)
    if (aci_requires_grad(v->tensors[j])) return true;
  return false;
}

/* Sizes of the parts of a node for this call. */
typedef struct sizes {
  bool grad; /* an input needs a gradient */
  int n_edges;
  size_t bytes; /* of variable parts */
} sizes;

static ac_status look_at(const ac_tensor *t, sizes *s, ac_err *e) {
  s->grad |= aci_requires_grad(t);
  s->n_edges++;
  s->bytes += 8 * (size_t)t->ndim;
  return t->flags & ACI_T_VIEW ? aci_check_view(t, e) : AC_OK;
}

/* Sums up s over all arguments. Refuses views taken before an in-place write to their storage:
 * their history does not match their values. */
static ac_status look(const ac_frame *f, sizes *s, ac_err *e) {
  *s = (sizes){false, 0, 0};
  for (int i = 0; i < f->n_args; i++) {
    const ac_value *v = &f->args[i];
    switch (v->kind) {
      case AC_T_TENSOR: AC_TRY(look_at(v->tensor, s, e)); break;
      case AC_T_TENSORS:
        s->bytes += (size_t)v->n * sizeof(ac_tensor *);
        for (int j = 0; j < v->n; j++) AC_TRY(look_at(v->tensors[j], s, e));
        break;
      case AC_T_INTS:
      case AC_T_DIMS:
      case AC_T_SHAPE:
      case AC_T_FLOATS: s->bytes += 8 * (size_t)v->n; break;
      case AC_T_STRING: s->bytes += pad8(strlen(v->str) + 1); break;
      default: break;
    }
  }
  return AC_OK;
}

static bool for_any(const ac_frame *f, uint32_t mask) {
  if (mask == 0) return true;
  for (int j = 0; j < f->n_args && j < 8; j++)
    if ((mask >> j & 1) && needs_grad(&f->args[j])) return true;
  return false;
}
/* Does the gradient of this call need argument or result i? */
static bool saves_in(const ac_frame *f, int i) {
  if (f->desc->composed != NULL) return true;
  return i < 24 && (f->desc->save & AC_SAVE_IN(i)) && for_any(f, i < 8 ? f->desc->save_for[i] : 0);
}
static bool saves_out(const ac_frame *f, int i) {
  return i < 8 && (f->desc->save & AC_SAVE_OUT(i)) &&
         for_any(f, i < 4 ? f->desc->save_out_for[i] : 0);
}

ac_status aci_write_check(const ac_ctx *c, const ac_tensor *t, ac_err *e) {
  if (!c->grad_enabled) return AC_OK;
  if (aci_is_leaf(t) && aci_requires_grad(t))
    return AC_FAIL(
        e, GRAD,
        "a leaf that requires gradients is written in place; do it inside accel.no_grad()");
  if (t->flags & ACI_T_LEAF_VIEW)
    return AC_FAIL(
        e, GRAD,
        "a view of a leaf that requires gradients is written in place; do it inside accel.no_grad()");
  return AC_OK;
}

/* Before a kernel that writes: a leaf that requires gradients, a view of one, or a view inside a
 * graph may not be written. */
ac_status aci_record_check(ac_ctx *c, ac_frame *f, ac_err *e) {
  sizes s;
  if (!c->grad_enabled) return AC_OK;
  AC_TRY(look(f, &s, e));
  const bool grad = s.grad;
  for (int i = 0; i < f->n_args; i++) {
    if (!(f->op->mutates >> i & 1)) continue;
    const ac_value *v = &f->args[i];
    int n = v->kind == AC_T_TENSORS ? v->n : v->kind == AC_T_TENSOR ? 1 : 0;
    for (int j = 0; j < n; j++) {
      const ac_tensor *t = v->kind == AC_T_TENSOR ? v->tensor : v->tensors[j];
      AC_TRY(aci_write_check(c, t, e));
      if ((t->flags & ACI_T_VIEW) && grad)
        return AC_FAIL(
            e, GRAD,
            "a view is written in place while gradients are recorded; write into the whole "
            "tensor, use an op that returns a "
            "new one (cat, where, index ops), or clone the view first");
    }
  }
  if (!grad || f->desc->nondiff || !(f->op->mutates & 1) || f->args[0].kind != AC_T_TENSOR ||
      !saves_in(f, 0))
    return AC_OK;
  return ac_clone(c, f->args[0].tensor, &f->before, e);
}

/* Edge k of n leads to the target of t's gradient. *slot is n's saved reference to t (NULL: none).
 * The edge's meta joins the list of those that save it. Shapes are copied to *var, which moves
 * on. */
static ac_status add_edge(aci_op_node *n, int k, ac_tensor *t, ac_tensor **slot, char **var,
                          ac_err *e) {
  ac_tensor *const saved = *slot;
  aci_meta *m = &n->base.meta[k];
  m->dtype = t->dtype;
  m->device = t->device;
  m->ndim = t->ndim;
  m->shape = (int64_t *)*var;
  memcpy(*var, t->shape, 8 * (size_t)t->ndim);
  *var += 8 * (size_t)t->ndim;
  m->saved = saved != NULL;
  m->slot = NULL;
  if (saved != NULL) {
    ac_tensor_retain(saved);
    m->slot = slot;
    m->next = saved->saved_by;
    m->back = &saved->saved_by;
    if (m->next != NULL) m->next->back = &m->next;
    saved->saved_by = m;
    m->version = atomic_load_explicit(&saved->storage->version, memory_order_relaxed);
  }
  n->base.n_edges = k + 1;
  n->base.edge[k].node = NULL;
  return aci_edge_of(t, &n->base.edge[k], e);
}

/* Copies the call's arguments into n, lists and strings to var, and makes an edge for each tensor.
 * After a failure the loop continues with NULL tensors, so that release_saved finds every argument
 * filled in. */
static ac_status fill_args(aci_op_node *n, const ac_frame *f, char *var, ac_err *e) {
  ac_status st = AC_OK;
  int k = 0;
  for (int i = 0; i < f->n_args; i++) {
    const ac_value *v = &f->args[i];
    ac_value *w = &n->args[i];
    bool save = (v->kind == AC_T_TENSOR || v->kind == AC_T_TENSORS) && saves_in(f, i);
    *w = *v;
    n->first[i] = (uint16_t)k;
    n->n_args = i + 1;
    switch (v->kind) {
      case AC_T_TENSOR:
        w->tensor = !save || st != AC_OK          ? NULL
                    : i == 0 && f->before != NULL ? f->before
                                                  : v->tensor;
        if (st == AC_OK) st = add_edge(n, k++, v->tensor, &w->tensor, &var, e);
        break;
      case AC_T_TENSORS: {
        ac_tensor **list = (ac_tensor **)(void *)var;
        var += (size_t)v->n * sizeof *list;
        for (int j = 0; j < v->n; j++) {
          list[j] = save && st == AC_OK ? v->tensors[j] : NULL;
          if (st == AC_OK) st = add_edge(n, k++, v->tensors[j], &list[j], &var, e);
        }
        w->tensors = list;
        break;
      }
      case AC_T_INTS:
      case AC_T_DIMS:
      case AC_T_SHAPE:
      case AC_T_FLOATS:
        memcpy(var, v->ints, 8 * (size_t)v->n);
        w->ints = (const int64_t *)(const void *)var;
        var += 8 * (size_t)v->n;
        break;
      case AC_T_STRING:
        memcpy(var, v->str, strlen(v->str) + 1);
        w->str = var;
        var += pad8(strlen(v->str) + 1);
        break;
      case AC_T_GENERATOR: w->kind = AC_T_NONE; break;
      default: break;
    }
  }
  return st;
}

void aci_saved_by_unlink(aci_meta *m) {
  if (m->slot == NULL) return;
  *m->back = m->next;
  if (m->next != NULL) m->next->back = m->back;
  m->slot = NULL;
}

ac_status aci_detach_saved(ac_tensor *t, ac_err *e) {
  if (t->saved_by == NULL) return AC_OK;
  ac_tensor *a = aci_tensor_detach(t);
  if (a == NULL) return AC_FAIL(e, OOM, "no memory for a tensor's head");
  a->saved_by = t->saved_by;
  a->saved_by->back = &a->saved_by;
  t->saved_by = NULL;
  for (const aci_meta *m = a->saved_by; m != NULL; m = m->next) {
    ac_tensor_retain(*m->slot = a);
    ac_tensor_release(t); /* the caller holds it */
  }
  ac_tensor_release(a);
  return AC_OK;
}

/* t was overwritten by an op without gradient: its old history does not belong to the new value. */
static void cut(ac_tensor *t) {
  ac_node *old = t->grad_fn;
  if (old == NULL) return;
  aci_retained_grad_drop(t);
  t->storage->graph_version++;
  t->grad_fn = NULL;
  aci_node_release(old);
}

void aci_write_done(const ac_ctx *c, ac_tensor *t) {
  if (c->grad_enabled) cut(t);
  /* no locked instruction: two threads that write one storage at a time race for its bytes as
   * well */
  _Atomic uint32_t *version = &t->storage->version;
  atomic_store_explicit(version, atomic_load_explicit(version, memory_order_relaxed) + 1,
                        memory_order_relaxed);
}

static void cut_written(ac_frame *f) {
  for (int i = 0; i < f->n_args; i++) {
    const ac_value *v = &f->args[i];
    if (!(f->op->mutates >> i & 1)) continue;
    if (v->kind == AC_T_TENSOR) cut(v->tensor);
    for (int j = 0; v->kind == AC_T_TENSORS && j < v->n; j++) cut(v->tensors[j]);
  }
}

/* Makes the node of a call whose kernel has run. Nothing happens without an input that needs a
 * gradient, or without a result of floats. The node is one allocation: aci_op_node, then args,
 * edges, metas, saved outputs, first edges, output versions and the variable part (shapes, lists,
 * numbers, strings) that look() counted. Until the last loop only this function holds the node, so
 * a failure releases it and leaves the results without history. That loop cannot fail. */
ac_status aci_record(ac_ctx *c, ac_frame *f, ac_err *e) {
  sizes s;
  int n_float = 0;
  AC_TRY(look(f, &s, e));
  if (!s.grad) return AC_OK;
  if (f->desc->nondiff) {
    cut_written(f);
    return AC_OK;
  }
  for (int i = 0; i < f->n_out; i++) n_float += aci_has_grad((ac_dtype)f->out[i]->dtype);
  if (n_float == 0) return AC_OK;

  size_t ne = (size_t)s.n_edges, na = (size_t)f->n_args, no = (size_t)f->n_out;
  size_t total = sizeof(aci_op_node) + na * sizeof(ac_value) +
                 ne * (sizeof(aci_edge) + sizeof(aci_meta)) + no * (sizeof(ac_tensor *) + 4) +
                 pad8(na * 2) + s.bytes + 16;
  aci_op_node *n = aci_small_alloc(total);
  if (n == NULL) return AC_FAIL(e, OOM, "no memory for a gradient node");
  *n = (aci_op_node){.base = {.ref = 1,
                              .cls = &aci_op_class,
                              .name = f->op->name,
                              .seq = ++c->node_seq,
                              .n_out = f->n_out,
                              .overwrites = f->op->mutates & 1,
                              .fused = aci_fuse_region(c)},
                     .bytes = total,
                     .op = f->op,
                     .device = f->device};
  if (f->op->rng_arg >= 0) n->rng_counter = f->rng_counter;
  char *p = (char *)(n + 1);
  n->args = (ac_value *)(void *)p;
  p += na * sizeof(ac_value);
  n->base.edge = (aci_edge *)(void *)p;
  p += ne * sizeof(aci_edge);
  n->base.meta = (aci_meta *)(void *)p;
  p += ne * sizeof(aci_meta);
  n->out = (ac_tensor **)(void *)p;
  p += no * sizeof(ac_tensor *);
  memset(n->out, 0, no * sizeof(ac_tensor *));
  n->first = (uint16_t *)(void *)p;
  p += pad8(na * 2);
  n->out_version = (uint32_t *)(void *)p;
  p += pad8(no * 4);
  ac_status st = fill_args(n, f, p, e);

  /* a saved result is kept as an alias without history: the result holds this node, which must not
   * hold it back */
  for (int i = 0; st == AC_OK && i < f->n_out; i++) {
    if (!saves_out(f, i)) continue;
    n->out[i] = aci_tensor_detach(f->out[i]);
    if (n->out[i] == NULL) st = AC_FAIL(e, OOM, "no memory for a tensor's head");
    else /* a written output's version rises right after recording */
      n->out_version[i] = atomic_load_explicit(&f->out[i]->storage->version, memory_order_relaxed) +
                          (f->op->mutates != 0);
  }
  if (__builtin_expect(c->record_more, 0) && st == AC_OK) {
    if (c->anomaly) n->base.site = aci_site(c);
    if (c->saved_hooks != NULL) st = aci_pack_node(c, n, e);
  }
  /* written tensors get another history below: nodes that saved them may not reach it */
  for (int i = 0; f->op->mutates != 0 && st == AC_OK && i < f->n_out; i++)
    st = aci_detach_saved(f->out[i], e);
  if (st != AC_OK) {
    aci_node_release(&n->base);
    return st;
  }
  /* one reference per result of floats */
  atomic_store_explicit(&n->base.ref, n_float, memory_order_relaxed);
  for (int i = 0; i < f->n_out; i++) {
    ac_tensor *t = f->out[i];
    if (!aci_has_grad((ac_dtype)t->dtype)) continue;
    if (f->op->mutates != 0) {
      t->storage->graph_version++;
      t->view_version = t->storage->graph_version;
      aci_retained_grad_move(t, &n->base);
    }
    ac_node *old = t->grad_fn;
    t->grad_fn = &n->base;
    t->out_nr = i;
    aci_node_release(old);
  }
  return AC_OK;
}
