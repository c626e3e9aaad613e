/* The JSON writer: what it writes reads back, parsed values come out as they were, and what is no JSON is refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"

static ac_err e;

static aci_json_doc *good(const char *s) {
  aci_json_doc *d;
  if (aci_json_parse(s, strlen(s), NULL, &d, &e) != AC_OK) fail_msg("refused: %s: %s", s, e.msg);
  return d;
}

static void writes_and_reads_back(void **state) {
  (void)state;
  aci_strbuf b = {0};
  aci_json_writer w = {.out = &b};
  aci_json_begin(&w, true);
  aci_json_key(&w, "a\"\n", 3);
  aci_json_begin(&w, false);
  aci_json_int(&w, INT64_MIN);
  aci_json_double(&w, 1);
  aci_json_double(&w, 0.1);
  aci_json_double(&w, -1e300);
  aci_json_bool(&w, true);
  aci_json_null(&w);
  aci_json_string(&w, "\x01\0\xe2\x82\xac\\/\x7f", 8);
  aci_json_end(&w);
  aci_json_key(&w, "", 0);
  aci_json_begin(&w, true);
  aci_json_end(&w);
  aci_json_end(&w);
  assert_int_equal(aci_json_finish(&w, &e), AC_OK);
  assert_string_equal(b.s, "{\"a\\\"\\n\":[-9223372036854775808,1.0,0.1,-1e+300,true,null,"
                           "\"\\u0001\\u0000\xe2\x82\xac\\\\/\x7f\"],\"\":{}}");
  aci_json_free(good(b.s));
  aci_strbuf_fini(&b);
  w = (aci_json_writer){.out = &b, .pretty = true};
  aci_json_begin(&w, true);
  aci_json_key(&w, "x", 1);
  aci_json_begin(&w, false);
  aci_json_int(&w, 1);
  aci_json_int(&w, 2);
  aci_json_end(&w);
  aci_json_key(&w, "y", 1);
  aci_json_begin(&w, false);
  aci_json_end(&w);
  aci_json_end(&w);
  assert_int_equal(aci_json_finish(&w, &e), AC_OK);
  assert_string_equal(b.s, "{\n  \"x\": [\n    1,\n    2\n  ],\n  \"y\": []\n}");
  aci_strbuf_fini(&b);
}

/* What was parsed comes out as it was, whole and in part; a large object has a table of keys that is not a member. */
static void parsed_values_are_written_again(void **state) {
  (void)state;
  aci_strbuf text = {0}, b = {0};
  aci_strbuf_printf(&text, "{\"a\\u0000\":[1,-2.5,true,null,\"\\n\",{}],\"many\":{");
  for (int i = 0; i < 200; i++) aci_strbuf_printf(&text, "%s\"k%d\":[%d]", i > 0 ? "," : "", i, i);
  aci_strbuf_printf(&text, "},\"last\":[]}");
  aci_json_doc *doc = good(text.s);
  const aci_json *root = aci_json_root(doc);
  aci_json_writer w = {.out = &b};
  aci_json_value(&w, root);
  assert_int_equal(aci_json_finish(&w, &e), AC_OK);
  assert_string_equal(b.s, text.s);
  aci_strbuf_fini(&b);
  w = (aci_json_writer){.out = &b};
  aci_json_begin(&w, false);
  aci_json_value(&w, aci_json_get(doc, aci_json_get(doc, root, "many"), "k150"));
  aci_json_value(&w, aci_json_get(doc, root, "last"));
  aci_json_end(&w);
  assert_int_equal(aci_json_finish(&w, &e), AC_OK);
  assert_string_equal(b.s, "[[150],[]]");
  aci_strbuf_fini(&b);
  aci_strbuf_fini(&text);
  aci_json_free(doc);
}

static void the_writer_refuses(void **state) {
  (void)state;
  static const double odd[] = {NAN, INFINITY, -INFINITY};
  for (int i = 0; i < 5; i++) {
    aci_strbuf b = {0};
    aci_json_writer w = {.out = &b};
    aci_json_begin(&w, false);
    if (i < 3) aci_json_double(&w, odd[i]);
    else if (i == 3) aci_json_string(&w, "\xed\xa0\x80", 3);
    else
      for (int k = 0; k < 100; k++) aci_json_begin(&w, false);
    for (int k = 0; k < 3; k++) aci_json_end(&w);
    assert_int_equal(aci_json_finish(&w, &e), AC_INVALID);
    aci_strbuf_fini(&b);
  }
}

static void random_doubles_survive(void **state) {
  (void)state;
  uint64_t r = 88172645463325252u;
  for (int i = 0; i < 20000; i++) {
    r ^= r << 13, r ^= r >> 7, r ^= r << 17;
    double v;
    memcpy(&v, &r, sizeof v);
    if (!isfinite(v)) continue;
    aci_strbuf b = {0};
    aci_json_writer w = {.out = &b};
    aci_json_double(&w, v);
    assert_int_equal(aci_json_finish(&w, &e), AC_OK);
    aci_json_doc *d = good(b.s);
    assert_int_equal(aci_json_root(d)->type, ACI_JSON_DOUBLE);
    assert_memory_equal(&aci_json_root(d)->u.f, &v, sizeof v);
    aci_json_free(d);
    aci_strbuf_fini(&b);
  }
}

/* Bytes changed at random: any verdict, no crash; what is accepted survives being written and read again
 * elsewhere. */

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(writes_and_reads_back), cmocka_unit_test(parsed_values_are_written_again),
                                     cmocka_unit_test(the_writer_refuses), cmocka_unit_test(random_doubles_survive)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
