/* Tensors kept for backward, which hooks may turn into something else (ac_saved_hooks). Ops keep
 * theirs in their node (op_node.h). Custom functions and recompute use aci_saved. */
#ifndef ACI_AUTOGRAD_SAVED_H
#define ACI_AUTOGRAD_SAVED_H
#include "autograd/op_node.h"

/* The packed form that hooks made of a tensor, and its former shape, dtype and device. */
typedef struct aci_packed {
  ac_status (*unpack)(void *packed, ac_tensor **out, ac_err *e);
  void (*free)(void *packed);
  void *data;
  ac_device *device;
  uint8_t dtype, ndim;
  int64_t shape[AC_MAX_DIMS];
} aci_packed;

/* A kept tensor, with its version. A leaf that requires gradients is kept itself. Any other tensor
 * is kept as an alias without history, because an in-place write may give it a history that leads
 * here. Or it is packed. All zero: nothing. */
typedef struct aci_saved {
  ac_tensor *t;
  uint32_t version;
  bool output; /* made by the node that keeps it: t has no history */
  aci_packed *packed;
  aci_edge edge; /* the history of a packed one, or of an alias */
} aci_saved;

/* Keeps t (NULL: nothing). output: by the node that makes it, whose reference must not close a
 * cycle. */
ac_status aci_save(ac_ctx *c, ac_tensor *t, bool output, aci_saved *s, ac_err *e);
/* Owned. With its history, unless it is an output. VERSION when it was written since. */
ac_status aci_saved_get(ac_ctx *c, const aci_saved *s, const char *what, int i, ac_tensor **out,
                        ac_err *e);
void aci_saved_drop(aci_saved *s);

/* Whether shape, dtype and device equal t's. */
bool aci_packed_fits(const aci_packed *p, const ac_tensor *t);
/* "f32 (2, 3) on cpu" */
const char *aci_packed_str(const aci_packed *p, char *buf, size_t n);

/* Gives everything that a new node keeps to the hooks. */
ac_status aci_pack_node(ac_ctx *c, aci_op_node *n, ac_err *e);
/* The arguments and results of a packed node for the time of its backward: args (n_args of them)
 * and out (n_out) are filled. u owns the unpacked tensors. Inputs get their history if the backward
 * will be differentiated. */
ac_status aci_unpack_node(const aci_op_node *n, bool create_graph, ac_expr *u, ac_value *args,
                          ac_tensor **out, ac_err *e);
/* true: there was something. */
bool aci_release_packed(aci_op_node *n);

#endif
