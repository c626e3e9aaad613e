/* Gradients on their way through the engine: their sums per node, and the checks of their shape,
 * dtype and device. */
#include <string.h>

#include "accel/ops.h"
#include "autograd/node.h"
#include "ops/core/fuse.h"
#include "tensor/format.h"

ac_status aci_gradient_add(ac_ctx *c, ac_tensor **slot, ac_tensor *v, bool create_graph,
                           ac_err *e) {
  ac_tensor *have = *slot, *sum = NULL;
  ac_scalar one = {.kind = AC_SCALAR_INT, .i = 1};
  ac_status st;
  if (have == NULL) {
    *slot = v;
    return AC_OK;
  }
  const bool waits = aci_fuse_waits(have) || aci_fuse_waits(v);
  bool exclusive = !create_graph && !waits && atomic_load(&have->ref) == 1 &&
                   atomic_load(&have->storage->ref) == 1 && !aci_overlaps_self(have);
  if (exclusive) st = ac_add_(c, have, ac_operand_tensor(v), one, &sum, e);
  else st = ac_add(c, ac_operand_tensor(have), ac_operand_tensor(v), one, &sum, e);
  ac_tensor_release(v);
  if (st == AC_OK) {
    ac_tensor_release(have);
    *slot = sum;
  }
  return st;
}

ac_status aci_gradient_fit(ac_ctx *c, const ac_node *from, int k, ac_tensor **g, ac_err *e) {
  const aci_meta *m = &from->meta[k];
  char a[128], b[128];
  if ((*g)->device != m->device)
    return AC_FAIL(e, DEVICE,
                   "the gradient that %s gave for its input %d is on %s, the input on %s",
                   from->name, k + 1, (*g)->device->name, m->device->name);
  if ((*g)->ndim != m->ndim || memcmp((*g)->shape, m->shape, 8 * (size_t)m->ndim) != 0)
    return AC_FAIL(e, SHAPE,
                   "the gradient that %s gave for its input %d has shape %s, the input %s",
                   from->name, k + 1, aci_shape_str((*g)->ndim, (*g)->shape, a, sizeof a),
                   aci_shape_str(m->ndim, m->shape, b, sizeof b));
  if ((*g)->dtype != m->dtype) {
    ac_tensor *cast = NULL;
    AC_TRY(ac_cast(c, *g, (ac_dtype)m->dtype, &cast, e));
    ac_tensor_release(*g);
    *g = cast;
  }
  return AC_OK;
}
