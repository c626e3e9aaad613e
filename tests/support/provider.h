/* A kind of device for tests that register one and never open it: two parameters, of which the first is a flag. */
#pragma once
#include "accel/device.h"

#define TEST_DEVICE_PARAMS(NAME)                             \
  {{NAME "_FAST", AC_PARAM_BOOL, "1", NULL, "be fast"},      \
   {NAME "_SLOTS", AC_PARAM_INT, "3", "1..8", "slots to look into"}}

/* The rest: .probe, and what a test is about. */
#define TEST_DEVICE(kind, rows, ...)                                                                            \
  {.struct_size = sizeof(ac_device_provider), .name = kind, .params = rows, .n_params = 2, .n_flags = 1,        \
   .open = test_device_open, __VA_ARGS__}

static inline ac_status test_device_open(const ac_params *p, int index, ac_team *team, ac_device **out, ac_err *e) {
  (void)p, (void)index, (void)team, (void)out;
  return ac_err_set(e, AC_UNSUPPORTED, __FILE__, __LINE__, "never opened here");
}
