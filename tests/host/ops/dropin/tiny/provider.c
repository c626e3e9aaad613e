/* A device from outside the tree: memory of the host under a name of its own, two of them, with kernels for two ops and a flag. It uses
 * public headers alone. The build finds it as host/ops/tiny/provider.c, ACCEL_DEVICE_MODULES as a library (plugin_tiny.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel/opdef.h"
#include "kernels.h"

static const ac_param_info params[] = {
    [TINY_ROUND] = {"TINY_ROUND", AC_PARAM_BOOL, "0", NULL, "round sums to whole numbers"},
    {"TINY_COUNT", AC_PARAM_INT, "2", "0..9", "how many tiny devices there are"},
};

static int probe(const ac_params *p, char *why, size_t n) {
  const int count = (int)ac_params_int(p, "TINY_COUNT");
  if (count == 0) snprintf(why, n, "ACCEL_TINY_COUNT says that there is none");
  return count;
}
static const char *libraries(void) { return "tinykit 0.1"; }
static void describe(int index, char *text, size_t n) { snprintf(text, n, "a tiny device, the %s", index == 0 ? "first" : "other"); }

/* ---- memory ---- */
static ac_status map(ac_device *dev, ac_mem_class c, size_t bytes, void **out, ac_err *e) {
  (void)c;
  *out = aligned_alloc(64, (bytes + 63) / 64 * 64);
  return *out != NULL ? AC_OK : AC_FAIL(e, OOM, "%s: no memory for %zu bytes", ac_device_name(dev), bytes);
}
static void unmap(ac_device *dev, ac_mem_class c, void *p, size_t bytes) {
  (void)dev, (void)c, (void)bytes;
  free(p);
}
static ac_status copy(ac_device *dev, ac_stream *s, void *dst, const void *src, size_t bytes, ac_err *e) {
  (void)dev, (void)s, (void)e;
  memmove(dst, src, bytes);
  return AC_OK;
}
static ac_status fill(ac_device *dev, ac_stream *s, void *dst, int byte, size_t bytes, ac_err *e) {
  (void)dev, (void)s, (void)e;
  memset(dst, byte, bytes);
  return AC_OK;
}

static ac_status open_tiny(const ac_params *p, int index, ac_team *team, ac_device **out, ac_err *e) {
  static const ac_device_vtable vt = {.struct_size = sizeof vt, .name = "tiny", .mem_map = map, .mem_unmap = unmap, .copy = copy, .fill = fill};
  (void)p;
  return ac_device_open(&vt, index, 0, team, out, e);
}

static const ac_device_kernel *kernels(void) {
  static const ac_device_kernel list[] = {{"fill_", tiny_fill}, {"add", tiny_add}, {NULL, NULL}};
  return list;
}

AC_DEVICE(tiny, .params = params, .n_params = 2, .n_flags = 1, .probe = probe, .libraries = libraries, .describe = describe,
          .open = open_tiny, .kernels = kernels);
