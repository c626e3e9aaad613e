/* Shared libraries of compression, loaded on first use: few runs read compressed files. */
#include <dlfcn.h>
#include <string.h>

#include "file/compress/compress.h"

ac_status aci_library_missing(const char *what, const char *package, ac_err *e) {
  return AC_FAIL(e, UNSUPPORTED,
                 "this build of accel reads no %s; install the package %s and build again", what,
                 package);
}

ac_status aci_library_take(const char *file, const char *package, const aci_symbol *list, int n,
                           ac_err *e) {
  void *h = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (h == NULL)
    return AC_FAIL(e, UNSUPPORTED, "%s is missing on this machine; install the package %s", file,
                   package);
  for (int i = 0; i < n; i++) {
    /* dlsym gives no function pointers: the bytes are the same on every POSIX system */
    void *p = dlsym(h, list[i].name);
    if (p == NULL)
      return AC_FAIL(e, UNSUPPORTED, "%s is too old: it lacks the function %s", file, list[i].name);
    memcpy(list[i].to, &p, sizeof p);
  }
  return AC_OK;
}
