/* Moves a tensor into other memory under its identity, perhaps in another dtype or on another
 * device: boxes, hooks, the node that accumulates its gradient stay. */
#include "shard/shard.h"
#include "tensor/tensor_impl.h"

ac_status aci_tensor_bind(ac_tensor *t, ac_storage *s, ac_dtype dt, int64_t offset, ac_err *e) {
  char text[128];
  const size_t size = aci_dsize(dt);
  if (t->grad_fn != NULL)
    return AC_FAIL(e, INVALID, "%s is the result of an operation and cannot be moved",
                   aci_tensor_str(t, text, sizeof text));
  if (t->layout != NULL || offset < 0 || (size_t)(offset + t->numel) * size > s->bytes)
    return AC_FAIL(e, INVALID, "%s does not fit into %zu bytes from element %lld",
                   aci_tensor_str(t, text, sizeof text), s->bytes, (long long)offset);
  if (t->grad != NULL && (t->grad->dtype != dt || t->grad->device != s->device))
    return AC_FAIL(e, INVALID, "%s has a gradient and cannot change its dtype or device",
                   aci_tensor_str(t, text, sizeof text));
  ac_storage_retain(s);
  ac_storage_release(t->storage);
  t->storage = s;
  t->device = s->device;
  t->dtype = (uint8_t)dt;
  t->offset = offset;
  t->view_version = s->graph_version;
  aci_contiguous_strides(t->ndim, t->shape, aci_stride_mut(t));
  return AC_OK;
}
