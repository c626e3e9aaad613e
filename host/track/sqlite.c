/* Loads libsqlite3. */
#include "track/sqlite.h"

#ifdef ACCEL_HAVE_SQLITE
#include <dlfcn.h>
#include <string.h>

/* dlsym gives no function pointers: the bytes are the same on every POSIX system. */
static bool take(void *from, const char *name, void *to, size_t n) {
  void *p = dlsym(from, name);
  if (p != NULL && n == sizeof p) memcpy(to, &p, n);
  return p != NULL;
}

ac_status aci_sqlite_load(aci_sqlite *l, ac_err *e) {
  void *h = dlopen("libsqlite3.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (h == NULL)
    return AC_FAIL(
        e, UNSUPPORTED,
        "the run store needs libsqlite3, which is not installed here (package libsqlite3-0)");
#define X(name) take(h, "sqlite3_" #name, &l->name, sizeof l->name) &&
  if (ACI_SQLITE_FUNCTIONS(X) l->libversion_number() >= 3024000) return AC_OK;
#undef X
  return AC_FAIL(e, UNSUPPORTED,
                 "the libsqlite3 that is installed here is older than version 3.24");
}
#endif
