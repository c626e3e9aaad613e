/* Gives a parameter another extent, memory or device under its identity: for ranks that keep a part
 * of it, or nothing but its shape. */
#include <string.h>

#include "shard/shard.h"
#include "tensor/tensor_impl.h"

ac_status aci_tensor_replace(ac_tensor *t, const ac_tensor *from, ac_err *e) {
  char a[128], b[128];
  if (t->grad_fn != NULL || t->layout != NULL || t->grad != NULL || from->layout != NULL)
    return AC_FAIL(
        e, INVALID,
        "%s is the result of an operation, packed, or has a gradient, and cannot be replaced",
        aci_tensor_str(t, a, sizeof a));
  if (t->dtype != from->dtype || t->ndim != from->ndim)
    return AC_FAIL(e, INVALID, "%s cannot become %s: dtype and rank stay",
                   aci_tensor_str(t, a, sizeof a), aci_tensor_str(from, b, sizeof b));
  ac_storage_retain(from->storage);
  ac_storage_release(t->storage);
  t->storage = from->storage;
  t->device = from->device;
  t->offset = from->offset;
  t->numel = from->numel;
  t->view_version = from->storage->graph_version;
  memcpy(t->shape, from->shape, (size_t)t->ndim * sizeof *t->shape);
  memcpy(aci_stride_mut(t), from->stride, (size_t)t->ndim * sizeof *t->shape);
  return AC_OK;
}
