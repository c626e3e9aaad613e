/* What tests of the embedding API share: options and hosts of this build, and a run that succeeds. Include it after support/test.h. */
#ifndef TESTS_BINDINGS_HOST_CASE_H
#define TESTS_BINDINGS_HOST_CASE_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel/accel.h"

static inline ac_host_options host_options(void) {
  static char dir[4096];
  ac_host_options o = AC_HOST_OPTIONS_INIT;
  const char *build = getenv("ACCEL_TEST_BUILD");
  snprintf(dir, sizeof dir, "%s/share/lua/5.4", build != NULL ? build : ".");
  o.lua_dir = dir;
  return o;
}

static inline ac_host *host_open(const ac_host_options *o) {
  ac_host *h = NULL;
  ac_err e;
  const ac_host_options standard = host_options();
  assert_ok(ac_host_open(o != NULL ? o : &standard, &h, &e), e);
  return h;
}

static inline void host_run(ac_host *h, const char *code) {
  ac_err e;
  assert_ok(ac_host_run_string(h, code, "t", 0, NULL, &e), e);
}

/* The script fails with AC_<code> and a message that contains `part`. */
#define host_fails(h, text, code, part)                                                                                                    \
  do {                                                                                                                                     \
    ac_err e_;                                                                                                                             \
    assert_fails(ac_host_run_string((h), (text), "t", 0, NULL, &e_), code, (part), e_);                                                    \
  } while (0)

#endif
