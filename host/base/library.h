/* Libraries of others that are loaded on first use, so that a start takes milliseconds and a machine
 * without one still runs everything else. base/libraries.txt lists them: the build, the packages that
 * are installed, and `accel-run env` come from that list. A module that uses one includes its header
 * under ACCEL_HAVE_<NAME> (ac_library in its CMakeLists.txt), keeps its functions in a struct, and
 * fills the struct with aci_library_open. Called by yaml.c, hmac.c, track/ and file/. */
#ifndef ACI_BASE_LIBRARY_H
#define ACI_BASE_LIBRARY_H
#include "accel/base.h"

typedef struct aci_library {
  const char *name, *package;
  const char *files;   /* names for dlopen, separated by spaces; the first that opens counts */
  const char *version; /* symbol of a const char *(void), or "" */
  const char *purpose; /* what needs it */
  bool built;          /* its header was here when accel was built, or is not needed */
} aci_library;

/* All of them, ended by a row without a name. */
extern const aci_library aci_libraries[];

/* A function to find: `to` points to the pointer that receives its address. */
typedef struct aci_symbol {
  const char *name;
  void *to;
} aci_symbol;

/* Opens a library of the list and fills n symbols. It stays open until the process ends. A second
 * call costs a look-up of each symbol. Fails with AC_UNSUPPORTED, and a message with the purpose and
 * the package, if this build or this machine lacks it, or if it lacks one of the symbols. */
ac_status aci_library_open(const char *name, const aci_symbol *symbols, size_t n, ac_err *e);

/* The same failure for a build without the header. Used where ACCEL_HAVE_<NAME> is not defined. */
ac_status aci_library_absent(const char *name, ac_err *e);

/* What `accel-run env` prints: its version or file name in text[0..n), or the failure of open. */
ac_status aci_library_version(const aci_library *library, char *text, size_t n, ac_err *e);

#endif
