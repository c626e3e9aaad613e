/* The functions of string and table that a host can stop give the results and the messages of Lua's own: thousands of drawn calls in two
 * hosts, one with each kind (host_strings.lua). */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel/accel.h"

static char *answers(bool stock, int64_t seed, int n) {
  static char dir[4096];
  ac_err e;
  ac_host *h = NULL;
  ac_host_options o = AC_HOST_OPTIONS_INIT;
  const char *build = getenv("ACCEL_TEST_BUILD");
  snprintf(dir, sizeof dir, "%s/share/lua/5.4", build != NULL ? build : ".");
  o.lua_dir = dir;
  o.strict = false;
  o.stock_functions = stock;
  assert_ok(ac_host_open(&o, &h, &e), e);
  char *script = ac_test_source_path("tests/bindings/host_strings.lua");
  assert_ok(ac_host_run_file(h, script, 0, NULL, &e), e);
  free(script);
  ac_host_value args[2] = {{.type = AC_HOST_INT, .i = seed}, {.type = AC_HOST_INT, .i = n}}, r;
  assert_ok(ac_host_call(h, "answers", 2, args, 1, &r, NULL, &e), e);
  assert_int_equal(r.type, AC_HOST_STRING);
  char *text = malloc(r.len + 1);
  assert_non_null(text);
  for (size_t i = 0; i <= r.len; i++) text[i] = r.s[i] != 0 || i == r.len ? r.s[i] : '0';
  ac_host_close(h);
  return text;
}

static void test_same(void **state) {
  (void)state;
  const int n = ac_test_every(4) > 1 ? 500 : 4000;
  for (int64_t seed = 1; seed <= 2; seed++) {
    char *want = answers(true, seed, n), *got = answers(false, seed, n);
    const char *a = want, *b = got;
    int line = 1;
    while (*a != 0 || *b != 0) {
      const size_t k = strcspn(a, "\n"), m = strcspn(b, "\n");
      if (k != m || memcmp(a, b, k) != 0)
        fail_msg("seed %d, line %d:\n  Lua's   %.*s\n  a host's %.*s", (int)seed, line, (int)k, a, (int)m, b);
      a += k + (a[k] != 0);
      b += m + (b[m] != 0);
      line++;
    }
    assert_true(line > 8 * n);
    free(want);
    free(got);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_same)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
