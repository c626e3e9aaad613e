/* The meta device: shapes, dtypes and bytes without bytes. Its pool does the same accounting as the
 * CPU's, so that a dry run predicts the memory of a real one. Called through its vtable. */
#include "device/device_impl.h"

static ac_status map(ac_device *dev, ac_mem_class c, size_t bytes, void **out, ac_err *e) {
  (void)dev, (void)c, (void)bytes, (void)e;
  *out = NULL; /* the pool takes NULL for phantom memory: its blocks have no address */
  return AC_OK;
}

static void unmap(ac_device *dev, ac_mem_class c, void *p, size_t bytes) {
  (void)dev, (void)c, (void)p, (void)bytes;
}

static ac_status copy(ac_device *dev, ac_stream *s, void *dst, const void *src, size_t bytes,
                      ac_err *e) {
  (void)dev, (void)s, (void)dst, (void)src, (void)bytes, (void)e;
  return AC_OK;
}

static ac_status fill(ac_device *dev, ac_stream *s, void *dst, int byte, size_t bytes, ac_err *e) {
  (void)dev, (void)s, (void)dst, (void)byte, (void)bytes, (void)e;
  return AC_OK;
}

const ac_device_vtable *ac_device_phantom_vtable(void) {
  static const ac_device_vtable vt = {
      .struct_size = sizeof vt,
      .name = "meta",
      .mem_map = map,
      .mem_unmap = unmap,
      .copy = copy,
      .fill = fill,
  };
  return &vt;
}

const ac_device_vtable *ac_device_meta_vtable(void) {
  static const ac_device_vtable vt = {
      .struct_size = sizeof vt,
      .name = "meta",
      .single = true,
      .mem_map = map,
      .mem_unmap = unmap,
      .mem_release = unmap, /* as the CPU, whose memory it foretells */
      .copy = copy,
      .fill = fill,
  };
  return &vt;
}
