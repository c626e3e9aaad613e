/* Memory that NCCL allocates itself (ncclMemAlloc, 2.19 and later), for data that is sent again and
 * again: parameters, units and buckets of
 * gradients. It serves the class PARAMETER of the device's pool, unless the host program has set a
 * source for that (ac_device_set_source). Once registered, NVLink's switches can reduce in it and
 * peers can map it without copies. Other memory of the device cannot be used so. While a
 * communicator of the device lives, the pool takes its segments from here. If NCCL refuses a
 * segment, and while work is recorded, the device's own memory is used. */
#include <stdlib.h>

#include "comm/nccl/nccl.h"
#include "device/capture.h"
#include "device/device_impl.h"

typedef struct piece {
  struct piece *next;
  void *base;
} piece;

/* Under the pool's lock, which calls all of it. */
typedef struct memory {
  const aci_nccl_library *lib;
  ac_device *device; /* whose pool owns this */
  ac_event *any;     /* never recorded: asking for it makes the device the thread's */
  piece *pieces;     /* of NCCL */
  bool refused;
} memory;

static ac_status map(void *user, size_t bytes, void **out, ac_err *e) {
  memory *m = user;
  const ac_device_vtable *vt = m->device->vt;
  const bool records = m->device->capture != NULL && m->device->capture->recording;
  piece *x = records ? NULL : malloc(sizeof *x);
  bool done;
  if (x != NULL && vt->event_query(m->device, m->any, &done, e) == AC_OK) {
    const int status = m->lib->ncclMemAlloc(out, bytes);
    if (status == ACI_NCCL_SUCCESS) {
      *x = (piece){m->pieces, *out};
      m->pieces = x;
      return AC_OK;
    }
    if (!m->refused)
      ac_log_write(AC_LOG_INFO, "comm", "%s: NCCL makes no memory, the device's own serves: %s",
                   m->device->name, m->lib->ncclGetErrorString(status));
    m->refused = true;
  }
  free(x);
  return vt->mem_map(m->device, AC_MEM_PARAMETER, bytes, out, e);
}

static void unmap(void *user, void *p, size_t bytes) {
  memory *m = user;
  const ac_device_vtable *vt = m->device->vt;
  for (piece **at = &m->pieces; *at != NULL; at = &(*at)->next) {
    piece *x = *at;
    if (x->base != p) continue;
    *at = x->next;
    free(x);
    /* unlike the device's own, NCCL's call waits for no kernel that may use it */
    vt->sync(m->device, NULL, NULL);
    m->lib->ncclMemFree(p);
    return;
  }
  vt->mem_unmap(m->device, AC_MEM_PARAMETER, p, bytes);
}

static void end(void *user) {
  memory *m = user;
  m->device->vt->event_free(m->device, m->any);
  free(m);
}

void aci_nccl_memory_open(aci_nccl *n) {
  ac_device *d = n->device;
  if (n->lib->ncclMemAlloc == NULL || n->lib->ncclMemFree == NULL ||
      ac_params_int(ac_ctx_params(n->world->ctx), "NCCL_MEMORY") == 0)
    return;
  memory *m = calloc(1, sizeof *m);
  if (m == NULL || d->vt->event_new(d, &m->any, NULL) != AC_OK) {
    free(m);
    return;
  }
  m->lib = n->lib;
  m->device = d;
  const ac_mem_source source = {
      .struct_size = sizeof source, .map = map, .unmap = unmap, .free = end, .user = m};
  if (aci_pool_offer_source(d, AC_MEM_PARAMETER, &source)) n->memory = m;
  else end(m);
}

void aci_nccl_memory_close(aci_nccl *n) {
  if (n->memory != NULL) aci_pool_withdraw_source(n->device, AC_MEM_PARAMETER, n->memory);
  n->memory = NULL;
}
