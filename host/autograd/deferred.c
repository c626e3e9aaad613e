/* Deferred gradients between the two parts of a backward (deferred.h). */
#include "autograd/deferred.h"

#include <stdlib.h>
#include <string.h>

/* A leaf, or the result of one op on a leaf that keeps nothing for its backward and so can run in
 * either part: the cast of a region of lowered precision, a transpose. */
static bool is_weight(const ac_node *to) {
  if (to != NULL && to->cls == &aci_op_class && to->n_edges == 1 &&
      ((const aci_op_node *)to)->op->desc->save == 0)
    to = to->edge[0].node;
  return to != NULL && to->cls == &aci_acc_class;
}

/* Edges to weights of a product. */
static uint64_t weight_edges(const ac_node *base) {
  if (base->cls != &aci_op_class || base->n_edges > ACI_SPLIT_EDGES) return 0;
  const aci_op_node *n = (const aci_op_node *)base;
  const ac_op_desc *d = n->op->desc;
  uint64_t set = 0;
  if (d->weights == 0 || d->grad == NULL) return 0;
  for (int i = 0; i < n->n_args; i++) {
    if (!(d->weights >> i & 1) || n->args[i].kind != AC_T_TENSOR) continue;
    if (is_weight(base->edge[n->first[i]].node)) set |= (uint64_t)1 << n->first[i];
  }
  return set;
}

uint64_t aci_deferred_shut(const ac_deferred *d, const ac_node *n) {
  const uint64_t weights = weight_edges(n);
  if (!d->second) return weights;
  return weights == 0 ? 0 : ~weights;
}

static aci_put_off *put_off(ac_deferred *d, ac_node *n, ac_tensor *const *g) {
  aci_put_off *p = calloc(1, sizeof *p + (size_t)n->n_out * sizeof *g);
  if (p == NULL) return NULL;
  p->n = n;
  aci_node_retain(n);
  for (int i = 0; i < n->n_out; i++)
    if (g[i] != NULL) ac_tensor_retain(p->g[i] = g[i]);
  *d->end = p;
  d->end = &p->next;
  return p;
}

ac_status aci_deferred_begin(ac_deferred *d, ac_node *n, ac_tensor *const *g, ac_tensor **kept,
                             aci_split *s, ac_err *e) {
  if (!d->second) {
    aci_put_off *p = put_off(d, n, g);
    if (p == NULL) return AC_FAIL(e, OOM, "no memory to defer gradients of weights");
    kept = p->kept;
  }
  s->shut = aci_deferred_shut(d, n);
  n->kept = kept;
  for (int k = 0; k < n->n_edges; k++)
    if (s->shut >> k & 1) {
      s->node[k] = n->edge[k].node;
      n->edge[k].node = NULL;
    }
  return AC_OK;
}

void aci_deferred_end(ac_node *n, const aci_split *s) {
  n->kept = NULL;
  for (int k = 0; k < n->n_edges; k++)
    if (s->shut >> k & 1) n->edge[k].node = s->node[k];
}

static void drop(ac_deferred *d) {
  aci_put_off *p = d->first;
  d->first = NULL;
  d->end = &d->first;
  for (aci_put_off *next; p != NULL; p = next) {
    next = p->next;
    for (int i = 0; i < p->n->n_out; i++) ac_tensor_release(p->g[i]);
    for (int i = 0; i < ACI_KEPT; i++) ac_tensor_release(p->kept[i]);
    aci_node_release(p->n);
    free(p);
  }
}

ac_status ac_backward_inputs(ac_ctx *c, int n_outputs, ac_tensor *const *outputs,
                             ac_tensor *const *grads, ac_deferred **out, ac_err *e) {
  ac_deferred *d = calloc(1, sizeof *d);
  *out = NULL;
  if (d == NULL) return AC_FAIL(e, OOM, "no memory to defer gradients of weights");
  d->ctx = c;
  d->end = &d->first;
  ac_status st = n_outputs > 0 ? aci_backward_part(c, n_outputs, outputs, grads, d, e) : AC_OK;
  if (st == AC_OK) *out = d;
  else ac_deferred_free(d);
  return st;
}

ac_status ac_backward_weights(ac_deferred *d, ac_err *e) {
  if (d->second)
    return AC_FAIL(e, STATE, "the deferred gradients of weights have already been computed");
  d->second = true;
  const ac_status st = aci_backward_part(d->ctx, 0, NULL, NULL, d, e);
  drop(d);
  return st;
}

bool ac_deferred_any(const ac_deferred *d) { return d->first != NULL; }

void ac_deferred_free(ac_deferred *d) {
  if (d == NULL) return;
  drop(d);
  free(d);
}

/* ---- functions for gradient rules ---- */
ac_tensor *ac_grad_kept(const ac_grad *g) {
  return g->node->base.kept != NULL ? g->node->base.kept[0] : NULL;
}

void ac_grad_keep(ac_grad *g, ac_tensor *t) {
  ac_tensor **kept = g->node->base.kept;
  if (kept == NULL || kept[0] != NULL || t == NULL) return;
  ac_tensor_retain(kept[0] = t);
}
