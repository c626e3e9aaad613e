/* Every call of mmap, pthread_create and of functions that open files which a script's life makes fails once, and from then on always:
 * opening the host, kernels on several threads, checkpoints in the background, trackers, data workers, weights in files.
 * failing_calls.h states what must hold. The script is calls_case.lua.
 * tier: sampled (one of several calls in a run of every change) */
#include "support/test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#include <stdio.h>
int main(void) {
  puts("skipped: the sanitizer needs these calls itself");
  return 77;
}
#else
#include "fault/failing_calls.h"

static char folder[4096], *script;

static ac_status run(ac_host *h, ac_err *e) {
  const char *const args[] = {folder};
  return ac_host_run_file(h, script, 1, args, e);
}

static void each_map(void **state) {
  (void)state;
  failing_each(run, MAPS, 7);
}
static void each_thread(void **state) {
  (void)state;
  failing_each(run, THREADS, 3);
}
static void each_file(void **state) {
  (void)state;
  failing_each(run, FILES, 97);
}

int main(void) {
  const char *tmp = getenv("ACCEL_TEST_TMP");
  snprintf(folder, sizeof folder, "%s", tmp != NULL ? tmp : "/tmp");
  script = ac_test_source_path("tests/fault/calls_case.lua");
  failing_set_up(2);
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_map), cmocka_unit_test(each_thread), cmocka_unit_test(each_file)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
