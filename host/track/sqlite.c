/* Loads libsqlite3. */
#include "track/sqlite.h"

#ifdef ACCEL_HAVE_SQLITE
#include "base/library.h"

ac_status aci_sqlite_load(aci_sqlite *l, ac_err *e) {
#define X(name) {"sqlite3_" #name, &l->name},
  const aci_symbol symbols[] = {ACI_SQLITE_FUNCTIONS(X)};
#undef X
  AC_TRY(aci_library_open("sqlite", symbols, sizeof symbols / sizeof *symbols, e));
  if (l->libversion_number() >= 3024000) return AC_OK;
  return AC_FAIL(e, UNSUPPORTED,
                 "the libsqlite3 that is installed here is older than version 3.24");
}
#endif
