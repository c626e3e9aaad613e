/* What is left of the machine's memory and of cgroups with limits, both versions: files of the system are ours here.
 * tier: every change, memory */
#include "support/test.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base_impl.h"

static char *root;

/* Files of /proc and /sys are those below root, as far as a case has them. */
FILE *fopen(const char *path, const char *mode) {
  static FILE *(*real)(const char *, const char *);
  char own[600];
  if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "fopen");
  if (root == NULL || (strncmp(path, "/proc/", 6) != 0 && strncmp(path, "/sys/", 5) != 0)) return real(path, mode);
  snprintf(own, sizeof own, "%s%s", root, path);
  return real(own, mode);
}

static void put(const char *path, const char *text) {
  char own[600];
  snprintf(own, sizeof own, "%s%s", root, path);
  for (char *p = strchr(own + strlen(root) + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
    *p = 0;
    mkdir(own, 0700);
    *p = '/';
  }
  ac_test_write(own, text, strlen(text));
}

static void begin(const char *name) {
  free(root);
  root = ac_test_tmp_path(name); /* ends in XXXXXX: nothing of an earlier run is there */
  assert_non_null(mkdtemp(root));
  put("/proc/meminfo", "MemTotal: 9000 kB\nMemFree: 100 kB\nMemAvailable: 8000 kB\n");
}

static void no_group(void **state) {
  (void)state;
  begin("none-XXXXXX");
  assert_int_equal(aci_host_available(), 8000 << 10);
  put("/proc/meminfo", "MemTotal: 9000 kB\n");
  assert_int_equal(aci_host_available(), aci_host_memory());
}

static void unified(void **state) {
  (void)state;
  begin("v2-XXXXXX");
  put("/proc/self/cgroup", "0::/job/step\n");
  put("/sys/fs/cgroup/job/step/memory.max", "max\n");
  put("/sys/fs/cgroup/job/step/memory.current", "4000000\n");
  assert_int_equal(aci_host_available(), 8000 << 10); /* no limit */
  put("/sys/fs/cgroup/job/memory.max", "5000000\n");
  assert_int_equal(aci_host_memory(), 5000000);
  assert_int_equal(aci_host_available(), 5000000); /* what is used is not told */
  put("/sys/fs/cgroup/job/memory.current", "4000000\n");
  assert_int_equal(aci_host_available(), 1000000);
  put("/sys/fs/cgroup/job/memory.stat", "anon 3000000\ninactive_file 700000\nactive_file 300000\n");
  assert_int_equal(aci_host_available(), 1700000);
  put("/sys/fs/cgroup/job/step/memory.max", "4000500\n"); /* the tightest of all */
  assert_int_equal(aci_host_available(), 500);
  put("/sys/fs/cgroup/job/step/memory.max", "3000000\n"); /* lowered below what is used */
  assert_int_equal(aci_host_available(), 1);
}

static void version_1(void **state) {
  (void)state;
  begin("v1-XXXXXX");
  put("/proc/self/cgroup", "4:cpu,memory:/box\n0::/\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "8000000000\n");
  put("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "6000000\n");
  put("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "5000000\n");
  put("/sys/fs/cgroup/memory/box/memory.stat", "inactive_file 10\ntotal_inactive_file 2000000\ntotal_active_file 5\n");
  assert_int_equal(aci_host_memory(), 6000000);
  assert_int_equal(aci_host_available(), 3000000);
}

static int done(void **state) {
  (void)state;
  free(root);
  root = NULL;
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(no_group), cmocka_unit_test(unified), cmocka_unit_test(version_1)};
  return cmocka_run_group_tests(tests, NULL, done);
}
