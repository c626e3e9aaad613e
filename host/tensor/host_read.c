/* Reading elements on the host: acquires offloaded bytes, and copies from other devices when
 * asked. */
#include "tensor/host_read.h"

#include <stdlib.h>

#include "tensor/geometry.h"

static ac_status copy_span(const ac_tensor *t, const char *base, aci_host_read *out, ac_err *e) {
  size_t size = aci_dsize((ac_dtype)t->dtype), skip = (size_t)t->offset * size;
  size_t bytes = (size_t)aci_span(t->ndim, t->shape, t->stride) * size;
  out->copy = malloc(bytes > 0 ? bytes : 1);
  if (out->copy == NULL) return AC_FAIL(e, OOM, "no memory for a host copy of %zu bytes", bytes);
  ac_device *d = t->device;
  AC_TRY(d->vt->copy(d, NULL, out->copy, base + skip, bytes, e));
  if (d->vt->sync != NULL) AC_TRY(d->vt->sync(d, NULL, e));
  out->base = (const char *)((uintptr_t)out->copy - skip);
  return AC_OK;
}

ac_status aci_host_read_open(const ac_tensor *t, bool copy, aci_host_read *out, ac_err *e) {
  ac_storage *s = t->storage;
  *out = (aci_host_read){NULL, NULL, NULL};
  bool direct = t->device != NULL && t->device->kind == AC_DEV_CPU;
  if (s == NULL || t->device->kind == AC_DEV_META)
    return AC_FAIL(e, DEVICE, "a tensor on %s has a shape and no values",
                   t->device == NULL ? "no device" : t->device->name);
  if (!direct && !copy)
    return AC_FAIL(e, DEVICE, "the host cannot read values on %s; copy the tensor to cpu",
                   t->device->name);
  void *base = s->ptr;
  if (s->provider != NULL) {
    AC_TRY(s->provider->acquire(s, &base, e));
    out->held = s;
  }
  out->base = base;
  if (direct) return AC_OK;
  ac_status st = copy_span(t, base, out, e);
  if (st != AC_OK) aci_host_read_close(out);
  return st;
}

ac_status aci_host_write_open(const ac_tensor *t, aci_host_read *out, void **p, ac_err *e) {
  AC_TRY(aci_host_read_open(t, false, out, e));
  *p = (char *)(uintptr_t)out->base + t->offset * (int64_t)aci_dsize((ac_dtype)t->dtype);
  return AC_OK;
}

void aci_host_write_close(aci_host_read *r) {
  if (r->held != NULL && r->held->provider != NULL && r->held->provider->release != NULL)
    r->held->provider->release(r->held, true);
  *r = (aci_host_read){NULL, NULL, NULL};
}

void aci_host_read_close(aci_host_read *r) {
  if (r->held != NULL && r->held->provider != NULL && r->held->provider->release != NULL)
    r->held->provider->release(r->held, false);
  free(r->copy);
  *r = (aci_host_read){NULL, NULL, NULL};
}
