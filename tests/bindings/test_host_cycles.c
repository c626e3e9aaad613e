/* Opening and closing a host a thousand times leaves nothing behind: heap, resident memory, descriptors, threads, tensors. The
 * sanitizer builds look for leaks besides. */
#include "support/test.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accel/accel.h"

enum { CYCLES = 1000, WARM = 600, SLACK = 1024, SLACK_KIB = 512 };

static int count_entries(const char *path) {
  int n = 0;
  DIR *d = opendir(path);
  assert_non_null(d);
  while (readdir(d) != NULL) n++;
  closedir(d);
  return n;
}

static long resident_kib(void) {
  long pages = 0, all = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  assert_non_null(f);
  assert_int_equal(fscanf(f, "%ld %ld", &all, &pages), 2);
  fclose(f);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static bool sanitized(void) {
  const char *s = getenv("ACCEL_TEST_SANITIZE");
  return s != NULL && s[0] != 0;
}

/* What a cycle does, in turn: nothing, a sum, training, an error, an exit, a coroutine and a mode that are left open. */
static const char *const scripts[] = {
    NULL,
    "local accel = require 'accel.core' assert(accel.ones(100):sum():item() == 100)",
    "local accel = require 'accel'\n"
    "local m = accel.nn.Sequential(accel.nn.Linear(4, 8), accel.nn.ReLU(), accel.nn.Linear(8, 1))\n"
    "local o = accel.optim.AdamW(m:parameters())\n"
    "m(accel.ones(16, 4)):mean():backward() o:step() accel.step()",
    "local accel = require 'accel.core' kept = accel.ones(10) kept:matmul(accel.ones(3))",
    "local accel = require 'accel.core' kept = { accel.randn(64, 64) } os.exit(2)",
    "local accel = require 'accel.core' co = coroutine.wrap(function() local _ <close> = accel.no_grad() local t = accel.ones(5)\n"
    "  coroutine.yield(t) end) t = co() scope = accel.scope() u = accel.ones(7)"};
enum { N_SCRIPTS = sizeof scripts / sizeof scripts[0] };

static void cycle(const ac_host_options *o, int i) {
  ac_err e;
  ac_host *h = NULL;
  const char *code = scripts[i % N_SCRIPTS];
  assert_ok(ac_host_open(o, &h, &e), e);
  if (code != NULL) {
    const ac_status want = i % N_SCRIPTS == 3 ? AC_SHAPE : AC_OK, st = ac_host_run_string(h, code, "cycle", 0, NULL, &e);
    if (st != want) fail_msg("cycle %d: %s", i, e.msg);
  }
  ac_host_close(h);
  assert_int_equal(ac_tensor_live(), 0);
}

static void test_cycles(void **state) {
  (void)state;
  static char dir[4096];
  ac_host_options o = AC_HOST_OPTIONS_INIT;
  const char *build = getenv("ACCEL_TEST_BUILD");
  snprintf(dir, sizeof dir, "%s/share/lua/5.4", build != NULL ? build : ".");
  o.lua_dir = dir;
  o.n_threads = 2;
  const int n = CYCLES, warm = sanitized() ? 10 : WARM; /* free lists keep the most that was ever free */
  size_t heap = 0;
  long resident = 0;
  int fds = 0, threads = 0;
  for (int i = 0; i < warm + n; i++) {
    cycle(&o, i);
    if (i != warm - 1) continue;
    heap = mallinfo2().uordblks;
    resident = resident_kib();
    fds = count_entries("/proc/self/fd");
    threads = count_entries("/proc/self/task");
  }
  assert_int_equal(count_entries("/proc/self/fd"), fds);
  assert_int_equal(count_entries("/proc/self/task"), threads);
  if (sanitized()) return; /* whose allocator keeps what was freed */
  const size_t now = mallinfo2().uordblks;
  if (now > heap + SLACK) fail_msg("%zu bytes of the heap were left by %d cycles", now - heap, n);
  if (resident_kib() > resident + SLACK_KIB) fail_msg("resident memory grew by %ld KiB", resident_kib() - resident);
}

/* Opening that fails leaves nothing either. */
static void test_failures(void **state) {
  (void)state;
  ac_err e;
  for (int i = 0; i < 50; i++) {
    ac_host *h = NULL;
    ac_host_options o = AC_HOST_OPTIONS_INIT;
    o.struct_size = 1;
    assert_fails(ac_host_open(&o, &h, &e), INVALID, "struct_size is 1", e);
    assert_null(h);
    assert_int_equal(setenv("ACCEL_NUM_THREADS", "many", 1), 0);
    assert_fails(ac_host_open(NULL, &h, &e), INVALID, "ACCEL_NUM_THREADS", e);
    assert_null(h);
    unsetenv("ACCEL_NUM_THREADS");
  }
  assert_int_equal(ac_tensor_live(), 0);
}

/* What malloc caches per thread counts as used and changes by chance: the test runs itself again without. */
static void without_caches(char **argv) {
  if (sanitized() || getenv("GLIBC_TUNABLES") != NULL) return;
  setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
  execv("/proc/self/exe", argv);
}

int main(int argc, char **argv) {
  (void)argc;
  without_caches(argv);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_cycles), cmocka_unit_test(test_failures)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
