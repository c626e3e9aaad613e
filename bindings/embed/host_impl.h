/* A host as its files see it: host.c opens it and runs scripts, host_call.c exchanges values with
 * them. */
#ifndef LAC_HOST_IMPL_H
#define LAC_HOST_IMPL_H
#include <stdatomic.h>
#include <stdint.h>

#include "accel/host.h"
#include "bindings/core/lac.h"

struct ac_host {
  struct ac_host *next; /* of all that are open (host_check.c) */
  lua_State *L;
  lac_state *S;
  /* of the last failed run. NULL: none. short_text if there was no memory for a copy */
  char *error_text;
  char short_text[200];
  bool exited, join, refused;
  int exit_code;
  char warning[512];
  bool warnings_off;
  bool strict, sorted_pairs; /* as it was opened */
  _Atomic uintptr_t thread;  /* that runs it. 0: none */
  int depth;                 /* of protected calls, kept by that thread */
  uintptr_t frame;           /* stack position of the outermost call */
  bool closed_inside;        /* by a function that a script called */
};

/* ac_host_open on the devices of another context, for threads that work for a Lua state (data
 * workers). */
ac_status lac_host_open_on(const ac_host_options *o, ac_device *const *devices, int n_devices,
                           ac_host **out, ac_err *e);

/* Lua's allocator. ud: the host. */
void *lac_host_allocate(void *ud, void *p, size_t old, size_t n);

/* Runs body(arg) protected. The error value is turned into e. h->error_text has the traceback. */
ac_status lac_host_protect(ac_host *h, lua_CFunction body, void *arg, ac_err *e);

#endif
