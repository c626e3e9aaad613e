/* Parameters: defaults, every type's spellings, errors that name variable, value and choice, unknown
 * variables. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "accel/base.h"
#include "base/base_impl.h"

static ac_err e;

static ac_params *snapshot(void) {
  ac_params *p;
  if (ac_params_new(&p, &e) != AC_OK) fail_msg("%s", e.msg);
  return p;
}

static int64_t int_of(const char *variable, const char *value) {
  setenv(variable, value, 1);
  ac_params *p = snapshot();
  int64_t v = ac_params_int(p, variable + strlen("ACCEL_"));
  assert_true(ac_params_is_set(p, variable + strlen("ACCEL_")));
  ac_params_free(p);
  unsetenv(variable);
  return v;
}

static void refused(const char *variable, const char *value, const char *allowed) {
  ac_params *p = (ac_params *)1;
  setenv(variable, value, 1);
  if (ac_params_new(&p, &e) != AC_INVALID) fail_msg("%s=%s was accepted", variable, value);
  assert_null(p);
  assert_non_null(strstr(e.msg, variable));
  assert_non_null(strstr(e.msg, value));
  assert_non_null(strstr(e.msg, allowed));
  unsetenv(variable);
}

static int clean(void **state) {
  (void)state;
  unsetenv("OMP_NUM_THREADS");
  char name[64] = "ACCEL_";
  for (int i = 0; i < ac_params_count(); i++) {
    strcpy(name + 6, ac_params_info(i)->name);
    unsetenv(name);
  }
  return 0;
}

static void defaults(void **state) {
  (void)state;
  ac_params *p = snapshot();
  assert_int_equal(ac_params_int(p, "NUM_THREADS"), 0);
  assert_string_equal(ac_params_str(p, "GC"), "auto");
  assert_int_equal(ac_params_int(p, "ONEDNN"), 1);
  assert_int_equal(ac_params_int(p, "POISON"), 0);
  assert_false(ac_params_is_set(p, "GC"));
  assert_true((uint64_t)ac_params_int(p, "MEM_LIMIT") == (uint64_t)((double)aci_host_memory() * 0.9));
  assert_true(ac_params_count() >= 11);
  for (int i = 0; i < ac_params_count(); i++) {
    const ac_param_info *row = ac_params_info(i);
    assert_true(row->help != NULL && row->help[0] != '\0');
    assert_non_null(ac_params_str(p, row->name));
  }
  assert_null(ac_params_info(-1));
  assert_null(ac_params_info(ac_params_count()));
  ac_params_free(p);
}

static void a_snapshot_stays(void **state) {
  (void)state;
  setenv("ACCEL_GC", "exact", 1);
  ac_params *p = snapshot();
  setenv("ACCEL_GC", "off", 1);
  assert_string_equal(ac_params_str(p, "GC"), "exact");
  unsetenv("ACCEL_GC");
  ac_params_free(p);
}

static void spellings(void **state) {
  (void)state;
  static const char *const yes[] = {"y", "yes", "t", "true", "on", "1", "TRUE", "Yes"};
  static const char *const no[] = {"n", "no", "f", "false", "off", "0", "False", "OFF"};
  for (int i = 0; i < 8; i++) {
    assert_int_equal(int_of("ACCEL_CHECK_NAN", yes[i]), 1);
    assert_int_equal(int_of("ACCEL_ONEDNN", no[i]), 0);
    setenv("ACCEL_ONEDNN", yes[i], 1); /* kernels read the same words */
    assert_true(aci_params_flag("ACCEL_ONEDNN", false));
    setenv("ACCEL_ONEDNN", no[i], 1);
    assert_false(aci_params_flag("ACCEL_ONEDNN", true));
  }
  setenv("ACCEL_ONEDNN", "maybe", 1);
  assert_true(aci_params_flag("ACCEL_ONEDNN", true) && !aci_params_flag("ACCEL_ONEDNN", false));
  unsetenv("ACCEL_ONEDNN");
  assert_true(aci_params_flag("ACCEL_ONEDNN", true) && !aci_params_flag("ACCEL_ONEDNN", false));
  assert_true(int_of("ACCEL_MEM_LIMIT", "0") == 0);
  assert_true(int_of("ACCEL_MEM_LIMIT", "4096") == 4096);
  assert_true(int_of("ACCEL_MEM_LIMIT", "8G") == (int64_t)8 << 30);
  assert_true(int_of("ACCEL_MEM_LIMIT", "1.5g") == (int64_t)3 << 29);
  assert_true(int_of("ACCEL_MEM_LIMIT", "512MiB") == (int64_t)512 << 20);
  assert_true(int_of("ACCEL_MEM_LIMIT", "64KB") == 64000);
  assert_true(int_of("ACCEL_MEM_LIMIT", "8Gb") == 1000000000);
  assert_true(int_of("ACCEL_MEM_LIMIT", "64kb") == 64000);
  assert_true(int_of("ACCEL_MEM_LIMIT", "1PiB") == (int64_t)1 << 50);
  assert_true(int_of("ACCEL_MEM_LIMIT", "2T") == (int64_t)2 << 40);
  assert_true(int_of("ACCEL_MEM_LIMIT", "50%") == (int64_t)((double)aci_host_memory() * 0.5));
  assert_true(int_of("ACCEL_SEED", "9223372036854775807") == INT64_MAX);
  assert_int_equal(int_of("ACCEL_ALLOC_FAIL", "-3"), -3);
  assert_int_equal(int_of("ACCEL_NUM_THREADS", "7"), 7);
  setenv("ACCEL_GC", "", 1); /* empty is unset */
  ac_params *p = snapshot();
  assert_false(ac_params_is_set(p, "GC"));
  ac_params_free(p);
  unsetenv("ACCEL_GC");
}

static void errors(void **state) {
  (void)state;
  refused("ACCEL_GC", "sometimes", "auto|exact|off");
  refused("ACCEL_GC", "aut", "auto|exact|off");
  refused("ACCEL_GC", "auto|exact", "auto|exact|off");
  refused("ACCEL_NUM_THREADS", "two", "0..1024");
  refused("ACCEL_NUM_THREADS", "-1", "0..1024");
  refused("ACCEL_NUM_THREADS", "1025", "0..1024");
  refused("ACCEL_NUM_THREADS", "4 ", "0..1024");
  refused("ACCEL_NUM_THREADS", "4.0", "0..1024");
  refused("ACCEL_SEED", "-1", "0..");
  refused("ACCEL_SEED", "9223372036854775808", "0..");
  refused("ACCEL_POISON", "2", "yes");
  refused("ACCEL_POISON", "maybe", "no");
  refused("ACCEL_MEM_LIMIT", "8X", "K, M, G");
  refused("ACCEL_MEM_LIMIT", "-8G", "K, M, G");
  refused("ACCEL_MEM_LIMIT", "inf", "K, M, G");
  refused("ACCEL_MEM_LIMIT", "0x10", "K, M, G");
  refused("ACCEL_MEM_LIMIT", "101%", "N%");
  refused("ACCEL_MEM_LIMIT", "8GG", "K, M, G");
  refused("ACCEL_MEM_LIMIT", "9000000000G", "K, M, G");
  refused("ACCEL_LOG", "loud", "trace|debug");
}

static void threads_fall_back_to_omp(void **state) {
  (void)state;
  static const struct {
    const char *omp;
    int n;
  } cases[] = {{"3", 3}, {"4,2", 4}, {"", 0}, {"x", 0}, {"-2", 0}, {"0", 0}, {"99999", 0}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    setenv("OMP_NUM_THREADS", cases[i].omp, 1);
    ac_params *p = snapshot();
    assert_int_equal(ac_params_int(p, "NUM_THREADS"), cases[i].n);
    assert_false(ac_params_is_set(p, "NUM_THREADS"));
    ac_params_free(p);
    assert_int_equal(int_of("ACCEL_NUM_THREADS", "2"), 2);
  }
  unsetenv("OMP_NUM_THREADS");
}

static void unknown_variables(void **state) {
  (void)state;
  const char *names[8];
  int before = ac_params_unknown(names, 8);
  setenv("ACCEL_NUM_THREAD", "4", 1);
  setenv("ACCELERATE_USE_CPU", "1", 1); /* another program's */
  assert_int_equal(ac_params_unknown(names, 8), before + 1);
  int found = 0;
  const char *all[64];
  int n = 0;
  for (; n < ac_params_count(); n++) all[n] = ac_params_info(n)->name;
  for (int i = 0; i < before + 1 && i < 8; i++) {
    if (strcmp(names[i], "ACCEL_NUM_THREAD") != 0) continue;
    found++;
    assert_string_equal(ac_nearest(names[i] + 6, all, n), "NUM_THREADS");
  }
  assert_int_equal(found, 1);
  assert_int_equal(ac_params_unknown(names, 0), before + 1);
  unsetenv("ACCEL_NUM_THREAD");
  unsetenv("ACCELERATE_USE_CPU");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(defaults, clean),
      cmocka_unit_test_setup(a_snapshot_stays, clean),
      cmocka_unit_test_setup(spellings, clean),
      cmocka_unit_test_setup(errors, clean),
      cmocka_unit_test_setup(threads_fall_back_to_omp, clean),
      cmocka_unit_test_setup(unknown_variables, clean),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
