/* Loads NCCL (nccl.h). */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "comm/nccl/nccl.h"

/* The process's: a library is loaded once. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static aci_nccl_library lib;
static enum { UNTRIED, LOADED, ABSENT } state;
static char reason[160];

enum { LEAST = 21800 };

static void load(const char *named) {
  const bool given = named[0] != 0 && strcmp(named, "auto") != 0;
  void *h = dlopen(given ? named : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  state = ABSENT;
  if (h == NULL) {
    snprintf(reason, sizeof reason, "%s does not load (Debian: libnccl2)",
             given ? named : "libnccl.so.2");
    return;
  }
  const char *missing = NULL;
#define FIND(name, params)                                                \
  {                                                                       \
    void *f = dlsym(h, #name);                                            \
    if (f == NULL) missing = #name;                                       \
    memcpy(&lib.name, &f, sizeof f); /* a function from a data pointer */ \
  }
  ACI_NCCL_CALLS(FIND)
  FIND(ncclGetErrorString, )
  const char *needed = missing;
  ACI_NCCL_LATER_CALLS(FIND)
  missing = needed;
#undef FIND
  if (missing == NULL &&
      (lib.ncclGetVersion(&lib.version) != ACI_NCCL_SUCCESS || lib.version < LEAST))
    snprintf(reason, sizeof reason, "NCCL %d.%d is too old; install 2.18 or later",
             lib.version / 10000, lib.version / 100 % 100);
  else if (missing != NULL)
    snprintf(reason, sizeof reason, "NCCL lacks %s; install 2.18 or later", missing);
  else state = LOADED;
}

const aci_nccl_library *aci_nccl_load(const ac_params *p, char *why, size_t n) {
  const char *named = ac_params_str(p, "NCCL");
  if (strcmp(named, "off") == 0) {
    snprintf(why, n, "ACCEL_NCCL=off");
    return NULL;
  }
  pthread_mutex_lock(&lock);
  if (state == UNTRIED) load(named);
  pthread_mutex_unlock(&lock);
  if (state == LOADED) return &lib;
  snprintf(why, n, "%s", reason);
  return NULL;
}
