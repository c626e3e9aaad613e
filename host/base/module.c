/* Finds modules that are loaded on first use (accel_onednn.so, accel_mpi.so). They are in the
 * library's folder or in accel/ next to it. Called by device/cpu, comm/mpi and the bindings. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base_impl.h"

static const char anchor; /* lies in this library */

void aci_module_publish(void) {
  Dl_info self;
  if (dladdr(&anchor, &self) == 0 || self.dli_fname == NULL) return;
  void *h = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
  if (h != NULL) dlclose(h); /* a promoted library stays promoted */
}

void *aci_module_open(const char *file) {
  /* by the bare name the library's run path leads to it */
  void *h = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  Dl_info self;
  if (h != NULL || dladdr(&anchor, &self) == 0 || self.dli_fname == NULL) return h;
  static const char *const places[] = {"", "accel/", "../lib/accel/"};
  const char *slash = strrchr(self.dli_fname, '/');
  const int folder = slash == NULL ? 0 : (int)(slash + 1 - self.dli_fname);
  for (size_t i = 0; h == NULL && i < sizeof places / sizeof places[0]; i++) {
    char path[4096];
    int n = snprintf(path, sizeof path, "%.*s%s%s", folder, self.dli_fname, places[i], file);
    /* skip missing files: dlerror() keeps the reason that counts */
    if (n > 0 && n < (int)sizeof path && strchr(path, '/') != NULL && access(path, F_OK) == 0)
      h = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  }
  return h;
}
