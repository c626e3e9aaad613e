/* Backward of one recorded op: unpacks the saved tensors and runs the gradient rule. Also the
 * functions for gradient rules. */
#include <stdio.h>

#include "autograd/saved.h"
#include "base/small.h"

#include <stdlib.h>
#include <string.h>

#include "accel/ops.h"
#include "ops_x.h"

/* Releases the saved tensor of one edge. */
static void drop_saved(aci_meta *m, ac_tensor *t) {
  aci_saved_by_unlink(m);
  if (m->saved) ac_tensor_release(t);
}

static void release_saved(ac_node *base) {
  aci_op_node *n = (aci_op_node *)base;
  bool any = false;
  int k = 0;
  for (int i = 0; i < n->n_args; i++) {
    ac_value *v = &n->args[i];
    if (v->kind == AC_T_TENSOR) {
      any |= v->tensor != NULL;
      if (k < base->n_edges) drop_saved(&base->meta[k], v->tensor);
      v->tensor = NULL;
      k++;
    } else if (v->kind == AC_T_TENSORS) {
      for (int j = 0; j < v->n; j++, k++) {
        any |= v->tensors[j] != NULL;
        if (k < base->n_edges) drop_saved(&base->meta[k], v->tensors[j]);
        v->tensors[j] = NULL;
      }
    }
  }
  for (int i = 0; i < base->n_out; i++) {
    any |= n->out[i] != NULL;
    ac_tensor_release(n->out[i]);
    n->out[i] = NULL;
  }
  if (n->packed != NULL) any |= aci_release_packed(n);
  if (any) base->saved_freed = true; /* a node without saved tensors may run any number of times */
}

static void op_free(ac_node *base) {
  release_saved(base);
  aci_small_free(base, ((aci_op_node *)base)->bytes);
}

static ac_status check_version(const aci_op_node *n, const ac_tensor *t, uint32_t want,
                               const char *what, int i, ac_err *e) {
  uint32_t have = atomic_load_explicit(&t->storage->version, memory_order_relaxed);
  char a[128];
  if (have == want) return AC_OK;
  return AC_FAIL(
      e, VERSION,
      "%s %d of %s (%s) is needed for its gradient but was changed in place afterwards (version "
      "%u, expected %u)",
      what, i + 1, n->op->name, aci_tensor_str(t, a, sizeof a), have, want);
}

static ac_status check_versions(const aci_op_node *n, ac_err *e) {
  for (int i = 0; i < n->n_args; i++) {
    const ac_value *v = &n->args[i];
    int m = v->kind == AC_T_TENSOR ? 1 : v->kind == AC_T_TENSORS ? v->n : 0;
    for (int j = 0; j < m; j++) {
      const aci_meta *meta = &n->base.meta[n->first[i] + j];
      const ac_tensor *t = v->kind == AC_T_TENSOR ? v->tensor : v->tensors[j];
      if (meta->saved) AC_TRY(check_version(n, t, meta->version, "argument", i, e));
    }
  }
  for (int i = 0; i < n->base.n_out; i++)
    if (n->out[i] != NULL) AC_TRY(check_version(n, n->out[i], n->out_version[i], "result", i, e));
  return AC_OK;
}

/* An input of a composed op for the run that is differentiated: with its history when that will be
 * differentiated again. */
static ac_tensor *input_again(ac_expr *x, ac_tensor *t, bool create_graph) {
  if (create_graph) return x_alias(x, t);
  ac_tensor *a = aci_tensor_detach(t);
  if (a != NULL) a->flags |= ACI_T_REQUIRES_GRAD;
  else x->st = AC_FAIL(x->e, OOM, "no memory for a tensor's head");
  return ac_expr_own(x, a);
}

/* An op composed of others is differentiated through them: it runs again on aliases of its inputs,
 * and the gradients of that run are taken. Aliases, because an input may itself be computed from
 * another input: a path between them belongs to the outer graph and must not count here too. alias,
 * want, got are one array: per edge an alias of the saved tensor, the aliases that need gradients
 * in order, and those gradients. */
static ac_status apply_composed(aci_op_node *n, const ac_value *saved, ac_ctx *c,
                                ac_tensor *const *dout, ac_tensor **din, bool create_graph,
                                ac_err *e) {
  ac_expr x;
  ac_value args[AC_MAX_ARGS];
  ac_tensor *out[AC_MAX_RESULTS] = {0}, *from[AC_MAX_RESULTS], *cot[AC_MAX_RESULTS];
  ac_expr_init(&x, c, e);
  int ne = n->base.n_edges, n_want = 0, n_from = 0;
  ac_tensor **alias = calloc((size_t)ne * 3 + 1, sizeof *alias), **want = alias + ne,
            **got = want + ne;
  if (alias == NULL) return AC_FAIL(e, OOM, "no memory for a gradient");
  bool was = ac_ctx_set_grad_enabled(c, true);
  for (int i = 0; i < n->n_args && x.st == AC_OK; i++) {
    args[i] = saved[i];
    int m = args[i].kind == AC_T_TENSOR ? 1 : args[i].kind == AC_T_TENSORS ? args[i].n : 0;
    for (int j = 0; j < m; j++) {
      int k = n->first[i] + j;
      ac_tensor *t = args[i].kind == AC_T_TENSOR ? saved[i].tensor : saved[i].tensors[j];
      alias[k] = n->base.edge[k].node != NULL ? input_again(&x, t, create_graph) : t;
      if (n->base.edge[k].node != NULL) want[n_want++] = alias[k];
    }
    if (args[i].kind == AC_T_TENSOR) args[i].tensor = alias[n->first[i]];
    if (args[i].kind == AC_T_TENSORS) args[i].tensors = alias + n->first[i];
  }
  if (n->op->rng_arg >= 0 && x.st == AC_OK)
    args[n->op->rng_arg] = (ac_value){.kind = AC_T_GENERATOR, .generator = &n->rng_counter};
  int n_out = x.st == AC_OK ? n->op->desc->composed(&x, args, out) : 0;
  for (int i = 0; i < n_out && i < n->base.n_out && x.st == AC_OK; i++)
    if (dout[i] != NULL && out[i] != NULL && aci_requires_grad(out[i])) {
      from[n_from] = out[i];
      cot[n_from++] = dout[i];
    }
  ac_status st = x.st;
  if (st == AC_OK && n_from > 0 && n_want > 0) {
    ac_backward_options o = {sizeof o, create_graph, create_graph};
    st = aci_gradients_within(c, n_from, from, cot, n_want, want, &o, got, e);
  }
  ac_ctx_set_grad_enabled(c, was);
  if (st == AC_OK)
    for (int k = 0, w = 0; k < ne; k++)
      if (n->base.edge[k].node != NULL) din[k] = got[w++];
  free(alias);
  ac_expr_end(&x);
  return st;
}

/* saved, saved_out: the tensors that the node keeps, or those unpacked for this run. */
static ac_status apply_rule(aci_op_node *n, const ac_value *saved, ac_tensor *const *saved_out,
                            ac_ctx *c, ac_tensor *const *dout, ac_tensor **din, bool create_graph,
                            ac_err *e) {
  const ac_op_desc *d = n->op->desc;
  if (d->composed != NULL && (create_graph || d->grad == NULL))
    return apply_composed(n, saved, c, dout, din, create_graph, e);

  ac_grad g;
  ac_tensor *out[AC_MAX_RESULTS];
  memset(&g, 0, offsetof(ac_grad, rng_counter));
  ac_expr_init(&g.x, c, e);
  for (int i = 0; i < n->base.n_out; i++) {
    out[i] = saved_out[i];
    /* give the alias its history back for the second derivative */
    if (out[i] != NULL && create_graph) {
      out[i] = ac_expr_own(&g.x, aci_tensor_detach(saved_out[i]));
      if (out[i] == NULL) return AC_FAIL(e, OOM, "no memory for a tensor's head");
      out[i]->grad_fn = &n->base;
      out[i]->out_nr = i;
      out[i]->view_version = out[i]->storage->graph_version;
      aci_node_retain(&n->base);
    }
  }
  g.op = n->op;
  g.args = saved;
  g.out = out;
  g.dout = dout;
  g.rng_counter = n->rng_counter;
  g.node = n;
  g.din = din;
  d->grad(&g);
  ac_status st = g.x.st;
  ac_expr_end(&g.x);
  return st;
}

/* While hooks unpack, a backward that they start may finish this node: its packed tensors stay
 * until the last such backward has finished. */
static ac_status apply_packed(aci_op_node *n, ac_ctx *c, ac_tensor *const *dout, ac_tensor **din,
                              bool create_graph, ac_err *e) {
  ac_expr u;
  ac_value args[AC_MAX_ARGS];
  ac_tensor *out[AC_MAX_RESULTS] = {0};
  ac_expr_init(&u, c, e);
  n->unpacking++;
  ac_status st = aci_unpack_node(n, create_graph, &u, args, out, e);
  if (st == AC_OK && e != NULL) e->op[0] = 0;
  if (st == AC_OK) st = apply_rule(n, args, out, c, dout, din, create_graph, e);
  ac_expr_end(&u);
  if (--n->unpacking == 0 && n->base.saved_freed) aci_release_packed(n);
  return st;
}

/* The public op of a hidden one, whose name begins with it: ctc_loss of ctc_loss_rows_backward. The op itself if there is none. */
static const ac_op *public_op(ac_ctx *c, const ac_op *op) {
  char name[128];
  const ac_op *o = op;
  snprintf(name, sizeof name, "%s", op->name);
  while (o == NULL || o->desc->hidden) {
    char *cut = strrchr(name, '_');
    if (cut == NULL || cut == name) return op;
    *cut = 0;
    o = ac_op_find(c, name);
  }
  return o;
}

static ac_status op_apply(ac_node *base, ac_ctx *c, ac_tensor *const *dout, ac_tensor **din,
                          bool create_graph, ac_err *e) {
  aci_op_node *n = (aci_op_node *)base;
  const ac_op_desc *d = n->op->desc;
  if (base->saved_freed)
    return AC_FAIL(
        e, GRAD,
        "backward through %s a second time: its saved tensors are freed; pass retain_graph=true to the "
        "first backward",
        n->op->name);
  if (d->grad == NULL && d->composed == NULL) {
    const ac_op *op = public_op(c, n->op);
    return AC_FAIL(e, GRAD, op == n->op ? "%s has no gradient" : "%s has no second derivative",
                   op->name);
  }
  AC_TRY(check_versions(n, e));
  if (__builtin_expect(n->packed != NULL, 0)) return apply_packed(n, c, dout, din, create_graph, e);
  return apply_rule(n, n->args, n->out, c, dout, din, create_graph, e);
}

const aci_node_class aci_op_class = {op_apply, release_saved, op_free};

/* ---- functions for gradient rules ---- */
bool ac_grad_needs_at(const ac_grad *g, int arg, int i) {
  const ac_value *v = &g->args[arg];
  if (v->kind != AC_T_TENSOR && v->kind != AC_T_TENSORS) return false;
  return g->node->base.edge[g->node->first[arg] + i].node != NULL;
}
bool ac_grad_needs(const ac_grad *g, int arg) { return ac_grad_needs_at(g, arg, 0); }

void ac_grad_set_at(ac_grad *g, int arg, int i, ac_tensor *t) {
  int k = g->node->first[arg] + i;
  if (t == NULL || g->node->base.edge[k].node == NULL) return;
  ac_tensor_retain(t);
  ac_tensor_release(g->din[k]);
  g->din[k] = t;
}
void ac_grad_set(ac_grad *g, int arg, ac_tensor *t) {
  if (g->args[arg].kind == AC_T_TENSOR || g->args[arg].kind == AC_T_TENSORS)
    ac_grad_set_at(g, arg, 0, t);
}

int ac_grad_ndim(const ac_grad *g, int arg, int i) {
  return g->node->base.meta[g->node->first[arg] + i].ndim;
}
const int64_t *ac_grad_shape(const ac_grad *g, int arg, int i) {
  return g->node->base.meta[g->node->first[arg] + i].shape;
}
ac_device *ac_grad_device(const ac_grad *g, int arg, int i) {
  return g->node->base.meta[g->node->first[arg] + i].device;
}
ac_dtype ac_grad_dtype(const ac_grad *g, int arg, int i) {
  return (ac_dtype)g->node->base.meta[g->node->first[arg] + i].dtype;
}

ac_tensor *ac_grad_reduce_to(ac_grad *g, int arg, ac_tensor *t) {
  if (t == NULL || !ac_grad_needs(g, arg)) return NULL;
  int nd = ac_grad_ndim(g, arg, 0);
  const int64_t *shape = ac_grad_shape(g, arg, 0);
  if (t->ndim != nd || memcmp(t->shape, shape, 8 * (size_t)nd) != 0)
    t = x_sum_to(&g->x, t, shape, nd);
  if (t != NULL && t->dtype != ac_grad_dtype(g, arg, 0))
    t = x_cast(&g->x, t, ac_grad_dtype(g, arg, 0));
  return t;
}
