/* Backward in two parts: gradients of inputs first, gradients of weights later
 * (ac_backward_inputs). The engine walks the graph twice. In the first part, edges of products (op
 * desc .weights) to weights that are leaves or casts of leaves are shut. In the second part all
 * other edges are shut. */
#ifndef ACI_AUTOGRAD_DEFERRED_H
#define ACI_AUTOGRAD_DEFERRED_H
#include "autograd/op_node.h"

enum { ACI_KEPT = 1, ACI_SPLIT_EDGES = 16 };

/* A node whose second part is put off. */
typedef struct aci_put_off {
  struct aci_put_off *next;
  ac_node *n;                /* retained */
  ac_tensor *kept[ACI_KEPT]; /* tensors that its rule keeps between the parts (ac_grad_keep) */
  ac_tensor *g[];            /* the gradients of its results, owned */
} aci_put_off;

struct ac_deferred {
  ac_ctx *ctx;
  aci_put_off *first, **end;
  bool second; /* the second part runs */
};

/* Edges of a node that are taken away while one part of its backward runs. */
typedef struct aci_split {
  uint64_t shut;
  ac_node *node[ACI_SPLIT_EDGES];
} aci_split;

/* Bit k: edge k of n takes no part in this walk. */
uint64_t aci_deferred_shut(const ac_deferred *d, const ac_node *n);
/* Around one part of n's backward: rules see the open edges alone. In the first part n is deferred.
 * kept: of the second. */
ac_status aci_deferred_begin(ac_deferred *d, ac_node *n, ac_tensor *const *g, ac_tensor **kept,
                             aci_split *s, ac_err *e);
void aci_deferred_end(ac_node *n, const aci_split *s);

/* One walk of the engine: from the outputs, or, without any, the second part. */
ac_status aci_backward_part(ac_ctx *c, int n_outputs, ac_tensor *const *outputs,
                            ac_tensor *const *grads, ac_deferred *deferred, ac_err *e);
#endif
