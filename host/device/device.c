/* Opening, counting and naming devices. Called by the context (which opens one per kind it uses)
 * and by tensors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/capture.h"
#include "device/device_impl.h"
#include "device/pool.h"

ac_status ac_device_open(const ac_device_vtable *vt, int index, size_t limit_bytes, ac_team *team,
                         ac_device **out, ac_err *e) {
  *out = NULL;
  if (vt->struct_size != sizeof *vt)
    return AC_FAIL(e, DEVICE, "device module '%s' was built for another version of accel",
                   vt->name);
  const int kind = aci_device_kind_named(vt->name, strlen(vt->name));
  if (kind < 0) return AC_FAIL(e, DEVICE, "no provider of device '%s' is registered", vt->name);
  if (index < 0 || (vt->single && index != 0))
    return AC_FAIL(e, DEVICE, "device '%s' has no index %d", vt->name, index);
  ac_device *d = calloc(1, sizeof *d);
  if (d == NULL) return AC_FAIL(e, OOM, "out of memory for device '%s'", vt->name);
  atomic_init(&d->ref, 1);
  d->kind = (ac_device_kind)kind;
  d->index = index;
  d->vt = vt;
  d->team = team;
  if (vt->single) snprintf(d->name, sizeof d->name, "%s", vt->name);
  else snprintf(d->name, sizeof d->name, "%.8s:%d", vt->name, index % 10000);
  ac_status st = vt->open == NULL ? AC_OK : vt->open(d, e);
  if (st != AC_OK) {
    free(d);
    return st;
  }
  st = aci_pool_new(d, limit_bytes, &d->pool, e);
  if (st != AC_OK) {
    if (vt->close != NULL) vt->close(d);
    free(d);
    return st;
  }
  *out = d;
  return AC_OK;
}

void ac_device_retain(ac_device *d) { atomic_fetch_add_explicit(&d->ref, 1, memory_order_relaxed); }

bool aci_device_hold(ac_device *d) {
  int32_t n = atomic_load_explicit(&d->ref, memory_order_relaxed);
  while (n > 0)
    if (atomic_compare_exchange_weak(&d->ref, &n, n + 1)) return true;
  return false;
}

void ac_device_release(ac_device *d) {
  if (d == NULL || atomic_fetch_sub_explicit(&d->ref, 1, memory_order_acq_rel) != 1) return;
  d->team = NULL;
  aci_pool_close(d->pool);
}

ac_device_kind ac_device_kind_of(const ac_device *d) { return d->kind; }

int ac_device_index(const ac_device *d) { return d->index; }

const char *ac_device_name(const ac_device *d) { return d->name; }

ac_status aci_device_upload(ac_device *d, ac_stream *s, void *dst, const void *src, size_t bytes,
                            ac_err *e) {
  if (d->vt->upload != NULL) return d->vt->upload(d, s, dst, src, bytes, e);
  AC_TRY(d->vt->copy(d, s, dst, src, bytes, e));
  return d->vt->sync == NULL ? AC_OK : d->vt->sync(d, s, e);
}

ac_status aci_capture_refuse(const ac_device *d, const char *what, ac_err *e) {
  aci_device_capture *c = d->capture;
  if (c == NULL) return AC_OK;
  if (c->why[0] == '\0') snprintf(c->why, sizeof c->why, "%s", what);
  return c->recording ? AC_FAIL(e, UNSUPPORTED, "%s: this cannot be recorded: %s", d->name, what)
                      : AC_OK;
}

ac_status ac_device_sync(ac_device *d, ac_err *e) {
  return d->vt->sync == NULL ? AC_OK : d->vt->sync(d, NULL, e);
}
