/* A kind of device that is registered while a context is open: the context has its parameters, and asks it for the default device. */
#include "support/provider.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel/device.h"
#include "accel/op.h"
#include "accel/ops.h"

static ac_err e;
static int asked;

static int probe(const ac_params *p, char *why, size_t n) {
  snprintf(why, n, "%d slots are empty", (int)ac_params_int(p, "LATE_SLOTS"));
  asked++;
  return 0;
}

static const ac_param_info rows[] = TEST_DEVICE_PARAMS("LATE");
static const ac_device_provider late = TEST_DEVICE("late", rows, .preference = 1000, .probe = probe);

static void registered_while_open(void **state) {
  (void)state;
  ac_ctx_options o = AC_CTX_OPTIONS_INIT;
  ac_ctx *c;
  ac_device_kind kind;
  o.device = "auto";
  assert_ok(ac_ctx_new(&o, &c, &e), e);
  assert_ok(ac_device_register(&late, &kind, &e), e);
  assert_int_equal(ac_params_int(ac_ctx_params(c), "LATE_SLOTS"), 3);
  assert_false(ac_params_is_set(ac_ctx_params(c), "LATE_FAST"));
  assert_non_null(ac_ctx_default_device(c));
  assert_true(asked > 0);
  ac_ctx_free(c);
}

/* As above, with nobody having read a parameter in between. */
static void asked_for_the_default(void **state) {
  (void)state;
  static const ac_param_info other_rows[] = {{"LATER_SLOTS", AC_PARAM_INT, "5", "1..8", "slots to look into"}};
  ac_device_provider later = late;
  static ac_device_provider kept;
  ac_ctx_options o = AC_CTX_OPTIONS_INIT;
  ac_ctx *c;
  ac_device_kind kind;
  later.name = "later", later.params = other_rows, later.n_params = 1, later.n_flags = 0;
  kept = later;
  o.device = "auto";
  assert_ok(ac_ctx_new(&o, &c, &e), e);
  assert_ok(ac_device_register(&kept, &kind, &e), e);
  assert_non_null(ac_ctx_default_device(c));
  assert_int_equal(ac_params_int(ac_ctx_params(c), "LATER_SLOTS"), 5);
  ac_ctx_free(c);
}

int main(void) {
  unsetenv("ACCEL_DEVICE"); /* the context chooses */
  const struct CMUnitTest tests[] = {cmocka_unit_test(registered_while_open), cmocka_unit_test(asked_for_the_default)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
