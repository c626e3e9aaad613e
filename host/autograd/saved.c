/* Hooks on tensors kept for backward: a stack of them in a context. Each has two sides: pack while
 * a call is recorded, unpack in its backward. A packed tensor is gone. Its node keeps its shape,
 * dtype and device and, in its edges, its origin, so that a second derivative finds the history
 * again. */
#include "autograd/saved.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void look(ac_ctx *c) { c->record_more = c->anomaly || c->saved_hooks != NULL; }

void ac_saved_hooks_push(ac_ctx *c, ac_saved_hooks *h) {
  h->outer = c->saved_hooks;
  c->saved_hooks = h;
  look(c);
}

void ac_saved_hooks_pop(ac_ctx *c, ac_saved_hooks *h) {
  ac_saved_hooks **p = &c->saved_hooks;
  while (*p != NULL && *p != h) p = &(*p)->outer;
  if (*p != NULL) *p = h->outer;
  h->outer = NULL;
  look(c);
}

bool aci_packed_fits(const aci_packed *p, const ac_tensor *t) {
  return p->dtype == t->dtype && p->device == t->device && p->ndim == t->ndim &&
         memcmp(p->shape, t->shape, 8 * (size_t)p->ndim) == 0;
}

const char *aci_packed_str(const aci_packed *p, char *buf, size_t n) {
  char shape[128];
  snprintf(buf, n, "%s %s on %s", ac_dtype_name((ac_dtype)p->dtype),
           aci_shape_str(p->ndim, p->shape, shape, sizeof shape), p->device->name);
  return buf;
}

static void packed_free(aci_packed *p) {
  if (p == NULL) return;
  if (p->free != NULL && p->data != NULL) p->free(p->data);
  free(p);
}

/* Shows an alias without history to the innermost hooks. *out NULL: this one is kept as it is. */
static ac_status pack(ac_ctx *c, ac_tensor *t, bool is_leaf, aci_packed **out, ac_err *e) {
  ac_saved_hooks *h = c->saved_hooks;
  *out = NULL;
  if (is_leaf && h->skip_leaves) return AC_OK;
  aci_packed *p = calloc(1, sizeof *p);
  ac_tensor *alias = aci_tensor_detach(t);
  if (p == NULL || alias == NULL) {
    free(p);
    ac_tensor_release(alias);
    return AC_FAIL(e, OOM, "no memory for a saved tensor");
  }
  p->unpack = h->unpack;
  p->free = h->free_packed;
  p->device = t->device;
  p->dtype = t->dtype;
  p->ndim = t->ndim;
  memcpy(p->shape, t->shape, 8 * (size_t)t->ndim);
  const uint32_t version = ac_storage_version(t->storage);
  const bool grad = ac_ctx_set_grad_enabled(c, false);
  ac_status st = h->pack(h->user, alias, &p->data, e);
  ac_ctx_set_grad_enabled(c, grad);
  if (st == AC_OK && ac_storage_version(t->storage) != version)
    st = AC_FAIL(e, GRAD,
                 "a hook of saved_tensors_hooks changed the tensor that it packs; clone it first");
  ac_tensor_release(alias);
  if (st == AC_OK) *out = p;
  else packed_free(p);
  return st;
}

/* Owned, without history. */
static ac_status unpack(ac_ctx *c, const aci_packed *p, ac_tensor **out, ac_err *e) {
  char a[160], b[128];
  *out = NULL;
  const bool grad = ac_ctx_set_grad_enabled(c, false);
  ac_status st = p->unpack(p->data, out, e);
  ac_ctx_set_grad_enabled(c, grad);
  AC_TRY(st);
  if (!aci_packed_fits(p, *out)) {
    st = AC_FAIL(e, GRAD, "a saved tensor was unpacked as %s, but it was %s",
                 aci_tensor_str(*out, b, sizeof b), aci_packed_str(p, a, sizeof a));
    ac_tensor_release(*out);
    *out = NULL;
    return st;
  }
  return AC_OK;
}

/* The same bytes with the history of an edge. Leaves get their accumulation node as grad_fn, since
 * the leaf itself may have been freed. */
static ac_tensor *with_history(const ac_tensor *t, const aci_edge *edge) {
  ac_tensor *a = aci_tensor_detach(t);
  if (a == NULL || edge->node == NULL) return a;
  a->grad_fn = edge->node;
  a->out_nr = edge->nr;
  a->view_version = a->storage->graph_version;
  aci_node_retain(edge->node);
  return a;
}

/* ---- one tensor ---- */

ac_status aci_save(ac_ctx *c, ac_tensor *t, bool output, aci_saved *s, ac_err *e) {
  *s = (aci_saved){.output = output};
  if (t == NULL) return AC_OK;
  if (c->saved_hooks != NULL) {
    if (!output) AC_TRY(aci_edge_of(t, &s->edge, e));
    ac_status st =
        pack(c, t, s->edge.node != NULL && s->edge.node->cls == &aci_acc_class, &s->packed, e);
    if (st != AC_OK || s->packed == NULL) {
      aci_node_release(s->edge.node);
      s->edge.node = NULL;
    }
    if (st != AC_OK || s->packed != NULL) return st;
  }
  if (output || !aci_is_leaf(t) || !aci_requires_grad(t)) {
    if (!output) AC_TRY(aci_edge_of(t, &s->edge, e));
    s->t = aci_tensor_detach(t);
    if (s->t == NULL) {
      aci_node_release(s->edge.node);
      s->edge.node = NULL;
      return AC_FAIL(e, OOM, "no memory for a tensor's head");
    }
  } else {
    ac_tensor_retain(s->t = t);
  }
  s->version = ac_storage_version(t->storage);
  return AC_OK;
}

ac_status aci_saved_get(ac_ctx *c, const aci_saved *s, const char *what, int i, ac_tensor **out,
                        ac_err *e) {
  *out = NULL;
  if (s->packed != NULL) {
    ac_tensor *t;
    AC_TRY(unpack(c, s->packed, &t, e));
    *out = s->edge.node != NULL ? with_history(t, &s->edge) : t;
    if (*out != t) ac_tensor_release(t);
    return *out != NULL ? AC_OK : AC_FAIL(e, OOM, "no memory for a tensor's head");
  }
  if (s->t == NULL) return AC_OK;
  const uint32_t have = ac_storage_version(s->t->storage);
  if (have != s->version)
    return AC_FAIL(e, VERSION, "%s %d was changed in place after forward (version %u, expected %u)",
                   what, i + 1, have, s->version);
  *out = s->edge.node != NULL ? with_history(s->t, &s->edge) : s->t;
  if (*out == NULL) return AC_FAIL(e, OOM, "no memory for a tensor's head");
  if (*out == s->t) ac_tensor_retain(s->t);
  return AC_OK;
}

void aci_saved_drop(aci_saved *s) {
  ac_tensor *t = s->t;
  aci_packed *p = s->packed;
  ac_node *n = s->edge.node;
  *s = (aci_saved){.output = s->output};
  ac_tensor_release(t);
  packed_free(p);
  aci_node_release(n);
}

/* ---- all of an op's node ---- */

static ac_status pack_input(ac_ctx *c, aci_op_node *n, int k, ac_tensor **t, ac_err *e) {
  const ac_node *from = n->base.edge[k].node;
  if (!n->base.meta[k].saved) return AC_OK;
  AC_TRY(pack(c, *t, from != NULL && from->cls == &aci_acc_class, &n->packed[k], e));
  if (n->packed[k] == NULL) return AC_OK;
  n->base.meta[k].saved = false;
  aci_saved_by_unlink(&n->base.meta[k]);
  ac_tensor_release(*t);
  *t = NULL;
  return AC_OK;
}

ac_status aci_pack_node(ac_ctx *c, aci_op_node *n, ac_err *e) {
  bool any = false;
  for (int k = 0; k < n->base.n_edges; k++) any |= n->base.meta[k].saved;
  for (int i = 0; i < n->base.n_out; i++) any |= n->out[i] != NULL;
  if (!any) return AC_OK;
  n->packed = calloc((size_t)n->base.n_edges + (size_t)n->base.n_out, sizeof *n->packed);
  if (n->packed == NULL) return AC_FAIL(e, OOM, "no memory for saved tensors");
  for (int i = 0; i < n->n_args; i++) {
    ac_value *v = &n->args[i];
    if (v->kind == AC_T_TENSOR) AC_TRY(pack_input(c, n, n->first[i], &v->tensor, e));
    for (int j = 0; v->kind == AC_T_TENSORS && j < v->n; j++)
      AC_TRY(pack_input(c, n, n->first[i] + j, &v->tensors[j], e));
  }
  for (int i = 0; i < n->base.n_out; i++) {
    if (n->out[i] == NULL) continue;
    aci_packed **p = &n->packed[n->base.n_edges + i];
    AC_TRY(pack(c, n->out[i], false, p, e));
    if (*p == NULL) continue;
    ac_tensor_release(n->out[i]);
    n->out[i] = NULL;
  }
  return AC_OK;
}

static ac_tensor *unpack_input(const aci_op_node *n, int k, ac_tensor *kept, bool create_graph,
                               ac_expr *u) {
  ac_tensor *t = NULL;
  if (u->st != AC_OK) return NULL;
  if (n->packed[k] == NULL) { /* held as well: a hook's own backward may free it */
    if (kept != NULL) ac_tensor_retain(kept);
    return ac_expr_own(u, kept);
  }
  u->st = unpack(u->ctx, n->packed[k], &t, u->e);
  if (u->st == AC_OK && create_graph && n->base.edge[k].node != NULL) {
    ac_tensor *a = with_history(t, &n->base.edge[k]);
    ac_tensor_release(t);
    t = a;
    if (a == NULL) u->st = AC_FAIL(u->e, OOM, "no memory for a tensor's head");
  }
  return ac_expr_own(u, t);
}

ac_status aci_unpack_node(const aci_op_node *n, bool create_graph, ac_expr *u, ac_value *args,
                          ac_tensor **out, ac_err *e) {
  for (int i = 0; i < n->n_args && u->st == AC_OK; i++) {
    const ac_value *v = &n->args[i];
    args[i] = *v;
    if (v->kind == AC_T_TENSOR)
      args[i].tensor = unpack_input(n, n->first[i], v->tensor, create_graph, u);
    if (v->kind != AC_T_TENSORS) continue;
    ac_tensor **list = aci_expr_list(u, v->n + 1);
    if (list == NULL) return AC_FAIL(e, OOM, "no memory for saved tensors");
    for (int j = 0; j < v->n; j++)
      list[j] = unpack_input(n, n->first[i] + j, v->tensors[j], create_graph, u);
    args[i].tensors = list;
  }
  for (int i = 0; i < n->base.n_out && u->st == AC_OK; i++) {
    const aci_packed *p = n->packed[n->base.n_edges + i];
    if (p != NULL) u->st = unpack(u->ctx, p, &out[i], u->e);
    else if ((out[i] = n->out[i]) != NULL) ac_tensor_retain(out[i]);
    out[i] = u->st == AC_OK ? ac_expr_own(u, out[i]) : NULL;
  }
  return u->st;
}

bool aci_release_packed(aci_op_node *n) {
  bool any = false;
  aci_packed **packed = n->packed;
  const int count = n->base.n_edges + n->base.n_out;
  if (packed == NULL) return false;
  if (n->unpacking > 0) return true;
  n->packed = NULL;
  for (int i = 0; i < count; i++) {
    any |= packed[i] != NULL;
    packed_free(packed[i]);
  }
  free(packed);
  return any;
}
