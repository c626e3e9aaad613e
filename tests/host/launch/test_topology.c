/* Which CPUs a rank gets: lists, a made-up machine with two nodes and threads, cuts. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "launch/launch_impl.h"

static void test_list(void **state) {
  (void)state;
  int v[8];
  assert_int_equal(aci_cpu_list("0-3,8,10-11\n", v, 8), 7);
  assert_int_equal(v[3], 3);
  assert_int_equal(v[4], 8);
  assert_int_equal(v[6], 11);
  assert_int_equal(aci_cpu_list("5", v, 8), 1);
  assert_int_equal(aci_cpu_list("\n", v, 8), 0);
  assert_int_equal(aci_cpu_list("0-99", v, 8), 100); /* counts what does not fit */
  static const char *const bad[] = {"x", "3-", "3-1", "-1", "1;2", "0-99999999", "1,,2"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_int_equal(aci_cpu_list(bad[i], v, 8), -1);
}

static char *sys;

static void put(const char *path, const char *text) {
  char full[700];
  snprintf(full, sizeof full, "%s/%s", sys, path);
  for (char *p = full + strlen(sys) + 1; (p = strchr(p, '/')) != NULL; p++) {
    *p = 0;
    mkdir(full, 0777);
    *p = '/';
  }
  ac_test_write(full, text, strlen(text));
}

static int make_machine(void **state) {
  (void)state;
  sys = ac_test_tmp_path("sys");
  mkdir(sys, 0777);
  put("devices/system/cpu/smt/active", "1\n");
  put("devices/system/node/node0/cpulist", "0-1,4-5\n");
  put("devices/system/node/node1/cpulist", "2-3,6-7\n");
  put("devices/system/node/possible", "0-1\n"); /* no node */
  for (int i = 0; i < 8; i++) {
    char path[100], pair[16];
    snprintf(path, sizeof path, "devices/system/cpu/cpu%d/topology/thread_siblings_list", i);
    snprintf(pair, sizeof pair, "%d,%d\n", i % 4, i % 4 + 4);
    put(path, pair);
  }
  return 0;
}

static int forget_machine(void **state) {
  (void)state;
  free(sys);
  return 0;
}

/* The CPUs of rank r of n, as text. */
static const char *part(const aci_cpus *c, int r, int n) {
  static char text[64];
  int first, k = aci_cpus_part(c, r, n, &first);
  text[0] = 0;
  for (int i = 0; i < k; i++) snprintf(text + strlen(text), sizeof text - strlen(text), "%d ", c->cpu[first + i]);
  return text;
}

static void test_parts(void **state) {
  (void)state;
  static const int all[] = {0, 1, 2, 3, 4, 5, 6, 7}, some[] = {6, 1, 5, 3};
  aci_cpus c;
  ac_err e;
  assert_ok(aci_cpus_of(sys, all, 8, &c, &e), e);
  assert_int_equal(c.n, 8);
  assert_int_equal(c.n_cores, 4);
  assert_string_equal(part(&c, 0, 1), "0 4 1 5 2 6 3 7 ");
  assert_string_equal(part(&c, 0, 2), "0 4 1 5 ");
  assert_string_equal(part(&c, 1, 2), "2 6 3 7 ");
  assert_string_equal(part(&c, 0, 3), "0 4 ");
  assert_string_equal(part(&c, 2, 3), "2 6 3 7 ");
  assert_string_equal(part(&c, 3, 4), "3 7 ");
  assert_string_equal(part(&c, 1, 8), "4 "); /* more ranks than cores: threads */
  assert_string_equal(part(&c, 4, 5), "3 7 ");
  assert_string_equal(part(&c, 0, 9), "");
  aci_cpus_free(&c);
  assert_ok(aci_cpus_of(sys, some, 4, &c, &e), e); /* a mask that cuts through cores */
  assert_int_equal(c.n_cores, 3);
  assert_string_equal(part(&c, 0, 1), "1 5 3 6 ");
  assert_string_equal(part(&c, 0, 3), "1 5 ");
  assert_string_equal(part(&c, 3, 4), "6 ");
  aci_cpus_free(&c);
}

/* Every CPU goes to one rank, every rank has one, for any number of them. */
static void test_cuts(void **state) {
  (void)state;
  static const int all[] = {0, 1, 2, 3, 4, 5, 6, 7};
  for (int n_cpus = 1; n_cpus <= 8; n_cpus++) {
    aci_cpus c;
    ac_err e;
    assert_ok(aci_cpus_of(n_cpus % 2 ? sys : "/nowhere", all, n_cpus, &c, &e), e);
    for (int n = 1; n <= n_cpus; n++) {
      int seen = 0;
      for (int r = 0; r < n; r++) {
        int first, k = aci_cpus_part(&c, r, n, &first);
        assert_true(k >= 1);
        assert_int_equal(first, seen);
        seen += k;
      }
      assert_int_equal(seen, n_cpus);
    }
    aci_cpus_free(&c);
  }
}

static void test_own(void **state) {
  (void)state;
  aci_cpus c;
  ac_err e;
  assert_ok(aci_cpus_read("/sys", &c, &e), e);
  assert_true(c.n >= 1 && c.n_cores >= 1 && c.n_cores <= c.n);
  aci_cpus_free(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_list), cmocka_unit_test(test_parts), cmocka_unit_test(test_cuts),
                                     cmocka_unit_test(test_own)};
  return cmocka_run_group_tests(tests, make_machine, forget_machine);
}
