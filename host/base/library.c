/* Opens the libraries of base/libraries.txt. */
#include "base/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* dlsym gives no function pointers: the bytes are the same on every POSIX system. */
static bool take(void *from, const char *name, void *to) {
  void *p = dlsym(from, name);
  if (p != NULL) memcpy(to, &p, sizeof p);
  return p != NULL;
}

/* The first of its files that opens, whose name is left in file[]. */
static void *open_file(const aci_library *l, char file[64]) {
  for (const char *p = l->files; *p != 0;) {
    const size_t n = strcspn(p, " ");
    snprintf(file, 64, "%.*s", (int)n, p);
    void *h = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (h != NULL) return h;
    p += n;
    p += strspn(p, " ");
  }
  return NULL;
}

/* The row of a name that accel itself writes down: a wrong one is a fault of ours. */
static const aci_library *find(const char *name) {
  const aci_library *l = aci_libraries;
  while (l->name != NULL && strcmp(l->name, name) != 0) l++;
  return l->name != NULL ? l : NULL;
}

static ac_status fails(const aci_library *l, const char *what, const char *then, ac_err *e) {
  return AC_FAIL(e, UNSUPPORTED,
                 "the library %s is needed for %s, and %s. Install the package %s%s", l->name,
                 l->purpose, what, l->package, then);
}

ac_status aci_library_absent(const char *name, ac_err *e) {
  const aci_library *l = find(name);
  if (l == NULL) return AC_FAIL(e, INVALID, "base/libraries.txt has no library '%s'", name);
  return fails(l, "this build of accel lacks it", " and build again", e);
}

ac_status aci_library_open(const char *name, const aci_symbol *symbols, size_t n, ac_err *e) {
  const aci_library *l = find(name);
  char file[64], what[160];
  if (l == NULL || !l->built) return aci_library_absent(name, e);
  void *h = open_file(l, file);
  if (h == NULL) return fails(l, "it is not installed here", "", e);
  for (size_t i = 0; i < n; i++)
    if (!take(h, symbols[i].name, symbols[i].to)) {
      snprintf(what, sizeof what, "%s, which is installed here, lacks the function %s", file,
               symbols[i].name);
      return fails(l, what, "", e);
    }
  return AC_OK;
}

ac_status aci_library_version(const aci_library *l, char *text, size_t n, ac_err *e) {
  char file[64];
  const char *(*version)(void);
  if (!l->built) return aci_library_absent(l->name, e);
  void *h = open_file(l, file);
  if (h == NULL) return fails(l, "it is not installed here", "", e);
  const bool tells = l->version[0] != 0 && take(h, l->version, &version);
  snprintf(text, n, "%s", tells ? version() : file);
  text[strcspn(text, " ,\n")] = 0; /* curl adds the libraries that it uses, bzip2 a date */
  return AC_OK;
}
