/* The table of device providers: what may enter it, parameters that come with a device, and its state in one line. */
#include "support/provider.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_impl.h"
#include "device/device_impl.h"

static ac_err e;
static int n_there = 2;

static int probe(const ac_params *p, char *why, size_t n) {
  snprintf(why, n, "none of %d is plugged in", (int)ac_params_int(p, "TOY_SLOTS"));
  return n_there;
}
static const char *libraries(void) { return "toykit 1.2"; }
static void describe(int index, char *text, size_t n) { snprintf(text, n, "toy number %d", index); }

static const ac_param_info rows[] = TEST_DEVICE_PARAMS("TOY");
static const ac_device_provider toy =
    TEST_DEVICE("toy", rows, .probe = probe, .libraries = libraries, .describe = describe);

static void what_may_not_enter(void **state) {
  (void)state;
  static const ac_param_info odd[] = {{"TOYS_FAST", AC_PARAM_BOOL, "1", NULL, "of another device"}},
                             text[] = {{"TOY_NAME", AC_PARAM_STR, "", NULL, "no flag"}},
                             taken[] = {{"LOG", AC_PARAM_BOOL, "1", NULL, "is there already"}};
  static const char *const names[] = {"", "Toy", "4toy", "toy:1", "a_long_one"};
  const int n = ac_device_n_providers();
  ac_device_kind kind;
  ac_device_provider p = toy;
  p.struct_size--;
  assert_fails(ac_device_register(&p, &kind, &e), INVALID, "another version", e);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    p = toy;
    p.name = names[i];
    assert_fails(ac_device_register(&p, &kind, &e), INVALID, "not a name of a device", e);
  }
  p = toy, p.open = NULL;
  assert_fails(ac_device_register(&p, &kind, &e), INVALID, "opens nothing", e);
  p = toy, p.params = odd, p.n_params = 1;
  assert_fails(ac_device_register(&p, &kind, &e), INVALID, "TOYS_FAST", e);
  p = toy, p.params = text, p.n_params = 1;
  assert_fails(ac_device_register(&p, &kind, &e), INVALID, "not a bool, int or size", e);
  p = toy, p.n_flags = 3;
  assert_fails(ac_device_register(&p, &kind, &e), INVALID, "more flags than parameters", e);
  p = toy, p.name = "l", p.params = taken, p.n_params = 1;
  assert_fails(ac_device_register(&p, &kind, &e), INVALID, "does not begin with its name", e);
  p = toy, p.name = "cpu", p.n_params = p.n_flags = 0;
  assert_fails(ac_device_register(&p, &kind, &e), STATE, "the device cpu already exists", e);
  assert_int_equal(ac_device_n_providers(), n);
}

static void kinds_and_parameters(void **state) {
  (void)state;
  ac_params *before, *after;
  ac_device_kind kind, again;
  assert_string_equal(ac_device_provider_at(AC_DEV_CPU)->name, "cpu");
  assert_string_equal(ac_device_provider_at(AC_DEV_META)->name, "meta");
  assert_ok(ac_params_new(&before, &e), e);
  const int n_rows = ac_params_count(), n = ac_device_n_providers();
  assert_ok(ac_device_register(&toy, &kind, &e), e);
  assert_int_equal((int)kind, n);
  assert_ok(ac_device_register(&toy, &again, &e), e);
  assert_int_equal(again, kind);
  assert_int_equal(ac_params_count(), n_rows + 2);
  assert_ptr_equal(ac_params_info(n_rows + 1), &rows[1]);
  assert_null(ac_device_provider_at(-1));
  assert_null(ac_device_provider_at(n + 1));
  assert_int_equal(aci_device_kind_named("toy:1", 3), n);
  assert_int_equal(aci_device_kind_named("to", 2), -1);

  const char *unknown[4];
  const int others = ac_params_unknown(unknown, 4);
  setenv("ACCEL_TOY_SLOTS", "5", 1);
  assert_int_equal(ac_params_unknown(unknown, 4), others); /* it means something */
  assert_ok(ac_params_new(&after, &e), e);
  assert_int_equal(ac_params_int(after, "TOY_SLOTS"), 5);
  assert_int_equal(ac_params_int(after, "TOY_FAST"), 1);
  assert_ok(aci_params_extend(before, &e), e); /* a snapshot from before the device came */
  assert_int_equal(ac_params_int(before, "TOY_SLOTS"), 5);
  setenv("ACCEL_TOY_SLOTS", "9", 1);
  ac_params_free(before);
  assert_fails(ac_params_new(&before, &e), INVALID, "ACCEL_TOY_SLOTS=9: expected 1..8", e);
  unsetenv("ACCEL_TOY_SLOTS");

  char text[200], name[8];
  assert_int_equal(ac_device_state((int)kind, after, text, sizeof text), 2);
  assert_string_equal(text, "toykit 1.2; toy:0 toy number 0; toy:1 toy number 1");
  n_there = 0;
  assert_int_equal(ac_device_state((int)kind, after, text, sizeof text), 0);
  assert_string_equal(text, "toykit 1.2; none of 5 is plugged in");
  assert_int_equal(ac_device_state((int)kind, after, text, 12), 0);
  assert_string_equal(text, "toykit 1.2;");
  aci_device_flag_name(&toy, 0, name, sizeof name);
  assert_string_equal(name, "fast");
  ac_params_free(after);
}

static void modules(void **state) {
  (void)state;
  ac_params *p;
  setenv("ACCEL_DEVICE_MODULES", ":accel_nowhere.so", 1);
  assert_ok(ac_params_new(&p, &e), e);
  assert_fails(ac_device_modules_load(p, &e), DEVICE, "accel_nowhere.so", e);
  ac_params_free(p);
  unsetenv("ACCEL_DEVICE_MODULES");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_may_not_enter), cmocka_unit_test(kinds_and_parameters),
                                     cmocka_unit_test(modules)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
