/* The libraries of base/libraries.txt: what opens here has its functions, and what fails names the library, what needs it and the package. */
#include "support/test.h"

#include <string.h>

#include "base/library.h"

static void rows(void **state) {
  (void)state;
  size_t n = 0;
  for (const aci_library *l = aci_libraries; l->name != NULL; l++, n++) {
    assert_true(l->name[0] != 0 && l->package[0] != 0 && l->files[0] != 0 && l->purpose[0] != 0);
    assert_null(strpbrk(l->name, " |"));
    assert_null(strpbrk(l->package, " |"));
    for (const aci_library *other = aci_libraries; other != l; other++) assert_string_not_equal(other->name, l->name);
    char text[64] = "";
    ac_err e = {0};
    if (aci_library_version(l, text, sizeof text, &e) == AC_OK) assert_true(text[0] != 0);
    else assert_non_null(strstr(e.msg, l->package));
  }
  assert_true(n > 10);
}

static void symbols(void **state) {
  (void)state;
  for (const aci_library *l = aci_libraries; l->name != NULL; l++) {
    void *function = NULL;
    const aci_symbol wrong = {"accel_has_no_such_function", &function};
    ac_err e = {0};
    assert_int_equal(aci_library_open(l->name, &wrong, 1, &e), AC_UNSUPPORTED);
    assert_non_null(strstr(e.msg, l->purpose));
    assert_non_null(strstr(e.msg, l->package));
    assert_null(function);
    if (l->version[0] == 0 || aci_library_open(l->name, NULL, 0, NULL) != AC_OK) continue;
    const aci_symbol right = {l->version, &function};
    assert_ok(aci_library_open(l->name, &right, 1, &e), e);
    assert_non_null(function);
  }
}

static void unknown(void **state) {
  (void)state;
  ac_err e = {0};
  assert_int_equal(aci_library_open("nothing", NULL, 0, &e), AC_INVALID);
  assert_non_null(strstr(e.msg, "libraries.txt"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows),
      cmocka_unit_test(symbols),
      cmocka_unit_test(unknown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
