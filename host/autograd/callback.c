/* Callback nodes: a backward supplied from outside - custom functions of scripts, recomputation,
 * sharding. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/anomaly.h"
#include "autograd/node.h"

typedef struct callback_node {
  ac_node base;
  ac_callback_node cb;
  char name[40];
  aci_edge edges[]; /* then the metas, then the inputs' shapes */
} callback_node;

static ac_status apply(ac_node *base, ac_ctx *c, ac_tensor *const *dout, ac_tensor **din,
                       bool create_graph, ac_err *e) {
  callback_node *n = (callback_node *)base;
  (void)create_graph; /* grad mode has the same value */
  if (base->saved_freed)
    return AC_FAIL(
        e, GRAD,
        "backward through %s a second time: its saved tensors are freed; pass retain_graph=true to the "
        "first backward",
        base->name);
  AC_TRY(n->cb.backward(n->cb.user, c, base->n_out, dout, base->n_edges, din, e));
  for (int i = 0; i < base->n_edges; i++)
    if (base->edge[i].node == NULL && din[i] != NULL) {
      ac_tensor_release(din[i]);
      din[i] = NULL;
    }
  return AC_OK;
}

static void release_saved(ac_node *base) {
  callback_node *n = (callback_node *)base;
  if (base->saved_freed || n->cb.release_saved == NULL) return;
  base->saved_freed = true;
  n->cb.release_saved(n->cb.user);
}

static void free_node(ac_node *base) {
  callback_node *n = (callback_node *)base;
  if (n->cb.free != NULL) n->cb.free(n->cb.user);
  free(n);
}

static const aci_node_class callback_class = {apply, release_saved, free_node};

/* One allocation: the node, its edges, their metas, the inputs' shapes. user belongs to the node
 * only once everything has succeeded (n->cb.free is set last), so a failure leaves it with the
 * caller. */
ac_status ac_node_callback(ac_ctx *c, const ac_callback_node *cb, int n_inputs,
                           ac_tensor *const *inputs, int n_outputs, ac_tensor *const *outputs,
                           bool *recorded, ac_err *e) {
  bool any = false;
  *recorded = false;
  if (cb->struct_size != sizeof *cb)
    return AC_FAIL(e, UNSUPPORTED, "ac_callback_node of another version");
  for (int i = 0; i < n_inputs; i++) any |= aci_requires_grad(inputs[i]);
  for (int i = 0; i < n_outputs; i++)
    if (outputs[i] != NULL && aci_requires_grad(outputs[i]))
      return AC_FAIL(e, GRAD,
                     "output %d of %s has a history already: make it inside no_grad, or detach it",
                     i + 1, cb->name);
  if (!any || !c->grad_enabled) {
    if (cb->free != NULL) cb->free(cb->user);
    return AC_OK;
  }
  size_t extents = 0;
  for (int i = 0; i < n_inputs; i++) extents += inputs[i]->ndim;
  callback_node *n =
      calloc(1, sizeof *n + (size_t)n_inputs * (sizeof(aci_edge) + sizeof(aci_meta)) +
                    extents * sizeof(int64_t));
  if (n == NULL) return AC_FAIL(e, OOM, "no memory for a gradient node");
  n->cb = *cb;
  n->cb.free = NULL; /* on failure user stays the caller's */
  snprintf(n->name, sizeof n->name, "%s", cb->name);
  n->base = (ac_node){.n_out = n_outputs,
                      .cls = &callback_class,
                      .name = n->name,
                      .edge = n->edges,
                      .seq = ++c->node_seq,
                      .meta = (aci_meta *)(void *)(n->edges + n_inputs)};
  int64_t *shape = (int64_t *)(void *)(n->base.meta + n_inputs);
  atomic_init(&n->base.ref, 1);
  if (c->anomaly) n->base.site = aci_site(c);
  ac_status st = AC_OK;
  for (int i = 0; i < n_inputs && st == AC_OK; i++) {
    n->base.n_edges = i + 1;
    n->base.meta[i] = (aci_meta){.shape = shape,
                                 .device = inputs[i]->device,
                                 .dtype = inputs[i]->dtype,
                                 .ndim = inputs[i]->ndim};
    memcpy(shape, inputs[i]->shape, 8 * (size_t)inputs[i]->ndim);
    shape += inputs[i]->ndim;
    st = aci_edge_of(inputs[i], &n->edges[i], e);
  }
  if (st == AC_OK) {
    n->cb.free = cb->free;
    for (int i = 0; i < n_outputs; i++) {
      if (outputs[i] == NULL || !aci_has_grad((ac_dtype)outputs[i]->dtype)) continue;
      outputs[i]->grad_fn = &n->base;
      outputs[i]->out_nr = i;
      outputs[i]->view_version = outputs[i]->storage->graph_version;
      aci_node_retain(&n->base);
    }
    *recorded = true;
  }
  aci_node_release(&n->base);
  return st;
}
