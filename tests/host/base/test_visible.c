/* Text for terminals: every control, direction and separator character, bytes that are not UTF-8, limits of room. */
#include "support/test.h"

#include <string.h>

#include "accel/base.h"
#include "base/open_read.h"
#include "base/visible.h"

static void shown(const char *s, size_t n, bool lines, const char *want) {
  char out[256];
  size_t needed;
  const size_t len = aci_visible(out, sizeof out, s, n, lines, &needed);
  assert_string_equal(out, want);
  assert_int_equal(len, strlen(want));
  assert_int_equal(needed, strlen(want));
  assert_int_equal(aci_is_visible(s, n, lines), n == len && memcmp(s, out, n) == 0);
}
#define SHOWN(s, lines, want) shown(s, sizeof(s) - 1, lines, want)

static void test_texts(void **state) {
  (void)state;
  SHOWN("", false, "");
  SHOWN("plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", false, "plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
  SHOWN("a\033[31mb\a\177", false, "a\\x1b[31mb\\x07\\x7f");
  SHOWN("a\nb\tc\rd", false, "a\\x0ab\\x09c\\x0dd");
  SHOWN("a\nb\tc\rd", true, "a\nb\tc\\x0dd");
  SHOWN("a\0b", true, "a\\x00b");
  SHOWN("\xe2\x80\xae\xe2\x81\xa6\xe2\x80\xa8\xe2\x80\x8b\xef\xbb\xbf\xc2\x9b", true, "\\u202e\\u2066\\u2028\\u200b\\ufeff\\u009b");
  SHOWN("\xf3\xa0\x81\x81", true, "\\U000e0041");
  SHOWN("\xff\xc0\x80\xed\xa0\x80\xf5\x80\x80\x80\xe2\x82", true, "\\xff\\xc0\\x80\\xed\\xa0\\x80\\xf5\\x80\\x80\\x80\\xe2\\x82");
}

static void test_room(void **state) {
  (void)state;
  char out[64];
  static const char s[] = "ab\033\xe2\x82\xac" "c";
  for (size_t cap = 1; cap < sizeof out; cap++) {
    memset(out, 'z', sizeof out);
    const size_t n = aci_visible(out, cap, s, sizeof s - 1, false, NULL);
    assert_true(n < cap && out[n] == 0 && strncmp("ab\\x1b\xe2\x82\xac" "c", out, n) == 0);
    assert_true(n == 0 || n == 1 || n == 2 || n == 6 || n == 9 || n == 10); /* whole characters */
  }
}

static void test_errors_and_paths(void **state) {
  (void)state;
  ac_err e;
  char shown_path[ACI_PATH_SHOWN], big[700];
  (void)AC_FAIL(&e, IO, "%s: gone", "x\033[2J\xe2\x80\xae\ny");
  assert_string_equal(e.msg, "x\\x1b[2J\\u202e\ny: gone");
  memset(big, 'x', sizeof big);
  memcpy(big + sizeof e.msg - 3, "\xe2\x82\xac", 3); /* cut by the end of the message */
  big[sizeof big - 1] = 0;
  (void)AC_FAIL(&e, IO, "%s", big);
  assert_int_equal(strlen(e.msg), sizeof e.msg - 3);
  assert_string_equal(aci_path_shown("a\nb", shown_path), "a\\x0ab");
  memset(big, '\033', sizeof big - 1);
  assert_true(strlen(aci_path_shown(big, shown_path)) < ACI_PATH_SHOWN);
  assert_true(aci_is_visible(shown_path, strlen(shown_path), false));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts), cmocka_unit_test(test_room), cmocka_unit_test(test_errors_and_paths)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
