/* The node of a recorded op: its arguments as they were, the tensors its gradient rule needs,
 * shapes of all inputs. One allocation. */
#ifndef ACI_AUTOGRAD_OP_NODE_H
#define ACI_AUTOGRAD_OP_NODE_H
#include "autograd/node.h"

typedef struct aci_op_node {
  ac_node base;
  size_t bytes; /* of the whole allocation */
  const ac_op *op;
  ac_generator rng_counter;
  int32_t n_args;
  ac_value *args;  /* tensors not saved are NULL */
  uint16_t *first; /* first edge of each argument */
  ac_tensor **out; /* saved outputs: aliases without history, or NULL */
  uint32_t *out_version;
  ac_device *device;
  /* per edge, then per result: the packed form that hooks made of a tensor. NULL: no hooks */
  struct aci_packed **packed;
  int unpacking; /* backward of this node in the making of them again, maybe nested */
} aci_op_node;

extern const aci_node_class aci_op_class;

/* Called before t gets a new history. The nodes that saved t then keep an alias without history,
 * whose version shows that the values have changed. */
ac_status aci_detach_saved(ac_tensor *t, ac_err *e);
void aci_saved_by_unlink(aci_meta *m);

#endif
