/* What GPUs do, by a stand-in for NVML (plugin_nvml.c): values and units, what a GPU does not tell, more GPUs than are sampled, no library,
 * one that does not begin, one that is another, several runs of one process. */
#include "support/test.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "track/system.h"

static char twin[4096];

static int begun(void) {
  void *h = dlopen(twin, RTLD_NOW | RTLD_LOCAL), *p = dlsym(h, "nvml_twin_begun");
  int (*count)(void);
  memcpy(&count, &p, sizeof count);
  const int n = count();
  dlclose(h);
  return n;
}

static void test_values(void **state) {
  (void)state;
  aci_gpu_sample s[ACI_GPUS];
  aci_gpus a = {.named = twin}, b = {.named = twin};
  for (int again = 0; again < 2; again++) {
    assert_int_equal(aci_gpus_sample(&a, s), 3);
    const double want[] = {87, 1536, 61, 345.5};
    for (int k = 0; k < ACI_GPU_VALUES; k++) {
      assert_true(s[0].has[k]);
      assert_close(&s[0].value[k], &want[k], 1, 0, 1e-9);
    }
    assert_false(s[1].has[0] || s[1].has[3]);
    assert_true(s[1].has[1] && s[1].has[2]);
    assert_true(s[1].value[1] == 3072);
    for (int k = 0; k < ACI_GPU_VALUES; k++) assert_false(s[2].has[k]);
  }
  assert_int_equal(begun(), 1);
  assert_int_equal(aci_gpus_sample(&b, s), 3);
  assert_int_equal(begun(), 2);
  aci_gpus_close(&a);
  assert_int_equal(aci_gpus_sample(&a, s), 0);
  assert_int_equal(aci_gpus_sample(&b, s), 3);
  aci_gpus_close(&b);
  assert_int_equal(begun(), 0);
}

static void test_system(void **state) {
  (void)state;
  aci_system system = {.gpus.named = twin};
  aci_system_value v[ACI_SYSTEM_VALUES];
  const int n = aci_system_sample(&system, 1, ".", v);
  int found = 0;
  for (int i = 0; i < n; i++) {
    if (strcmp(v[i].tag, "system/gpu0_watts") == 0) {
      assert_close(&v[i].value, &(double){345.5}, 1, 0, 1e-9);
      found++;
    }
    if (strcmp(v[i].tag, "system/gpu1_memory_mib") == 0) found++;
    assert_null(strstr(v[i].tag, "gpu1_watts"));
    assert_null(strstr(v[i].tag, "gpu2"));
  }
  assert_int_equal(found, 2);
  aci_system_close(&system);
  setenv("NVML_TWIN_GPUS", "40", 1); /* all places are filled, none beyond */
  aci_system many = {.gpus.named = twin};
  const int m = aci_system_sample(&many, 1, ".", v);
  assert_true(m <= ACI_SYSTEM_VALUES);
  assert_string_equal(v[m - 1].tag, "system/gpu15_watts");
  aci_system_close(&many);
  unsetenv("NVML_TWIN_GPUS");
}

static void test_none(void **state) {
  (void)state;
  aci_gpu_sample s[ACI_GPUS];
  setenv("NVML_TWIN_INIT", "9", 1); /* the driver is not loaded */
  const char *const named[] = {"off", "./there/is/none.so", "libm.so.6", twin};
  for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
    aci_gpus g = {.named = named[i]};
    for (int again = 0; again < 2; again++) assert_int_equal(aci_gpus_sample(&g, s), 0);
    aci_gpus_close(&g);
  }
  assert_int_equal(begun(), 0);
  unsetenv("NVML_TWIN_INIT");
}

int main(void) {
  const char *folder = getenv("ACCEL_TEST_PLUGINS");
  if (folder == NULL) return 77;
  snprintf(twin, sizeof twin, "%s/plugin_nvml.so", folder);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_system), cmocka_unit_test(test_none)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
