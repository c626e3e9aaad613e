/* Storages: who owns the bytes, how many tensors look at them, and the version that in-place writes
 * raise. Called by tensor.c, by files and by everything that brings memory of its own. */
#include <stdlib.h>
#include <string.h>

#include "base/small.h"
#include "tensor/tensor_impl.h"

static ac_status make(ac_device *d, size_t bytes, ac_storage **out, ac_err *e) {
  ac_storage *s = aci_small_alloc(sizeof *s);
  *out = s;
  if (s == NULL) return AC_FAIL(e, OOM, "no memory for a storage's head");
  *s = (ac_storage){.ref = 1, .bytes = bytes, .device = d};
  return AC_OK;
}

/* Memory from elsewhere retains the device itself. A block retains its pool, and through it the
 * device's struct. */
static ac_status make_foreign(ac_device *d, size_t bytes, ac_storage **out, ac_err *e) {
  if (!aci_device_hold(d)) return AC_FAIL(e, DEVICE, "%s was closed", d->name);
  ac_status st = make(d, bytes, out, e);
  if (st != AC_OK) ac_device_release(d);
  return st;
}

ac_status ac_storage_new(ac_device *d, size_t bytes, ac_mem_class c, ac_storage **out, ac_err *e) {
  ac_storage *s = NULL;
  *out = NULL;
  AC_TRY(make(d, bytes, &s, e));
  ac_status st = ac_block_alloc(d, bytes, c, NULL, &s->block, e);
  if (__builtin_expect(st != AC_OK, 0)) {
    aci_small_free(s, sizeof *s);
    return st;
  }
  s->ptr = s->block->ptr;
  *out = s;
  return AC_OK;
}

ac_status ac_storage_wrap(ac_device *d, void *ptr, size_t bytes, void (*free_fn)(void *user),
                          void *user, ac_storage **out, ac_err *e) {
  *out = NULL;
  if (ptr == NULL && bytes > 0 && d->kind != AC_DEV_META)
    return AC_FAIL(e, INVALID, "no address given for %zu bytes of foreign memory", bytes);
  AC_TRY(make_foreign(d, bytes, out, e));
  (*out)->ptr = ptr;
  (*out)->free_fn = free_fn;
  (*out)->impl = user;
  return AC_OK;
}

ac_status ac_storage_provided(ac_device *d, size_t bytes, const ac_provider *p, void *impl,
                              ac_storage **out, ac_err *e) {
  *out = NULL;
  if (p->struct_size != sizeof *p)
    return AC_FAIL(e, INVALID, "provider '%s' was built for another version of accel", p->name);
  AC_TRY(make_foreign(d, bytes, out, e));
  (*out)->provider = p;
  (*out)->impl = impl;
  return AC_OK;
}

void ac_storage_retain(ac_storage *s) {
  atomic_fetch_add_explicit(&s->ref, 1, memory_order_relaxed);
}

void ac_storage_release(ac_storage *s) {
  if (s == NULL || !aci_unref(&s->ref)) return;
  for (aci_derived *d = s->derived; d != NULL;) {
    aci_derived *next = d->next;
    ac_storage_release(d->storage);
    free(d);
    d = next;
  }
  if (s->provider != NULL && s->provider->free != NULL) s->provider->free(s);
  if (s->free_fn != NULL) s->free_fn(s->impl);
  free(s->layout);
  if (s->block != NULL) ac_block_free(s->block);
  else ac_device_release(s->device);
  aci_small_free(s, sizeof *s);
}

size_t ac_storage_bytes(const ac_storage *s) { return s->bytes; }
uint32_t ac_storage_version(const ac_storage *s) {
  return atomic_load_explicit(&s->version, memory_order_relaxed);
}
