/* JSON: a pinned verdict for each kind of good, bad and doubtful text of RFC 8259; events, document, limits. */
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

/* The input in a block of exactly its size, so that a sanitizer sees any read past its end. */
static ac_status parse_n(const char *s, size_t n, aci_json_doc **d) {
  char *exact = malloc(n == 0 ? 1 : n);
  memcpy(exact, s, n);
  ac_status st = aci_json_parse(exact, n, NULL, d, &e);
  free(exact);
  return st;
}

static aci_json_doc *good(const char *s) {
  aci_json_doc *d;
  if (parse_n(s, strlen(s), &d) != AC_OK) fail_msg("refused: %s: %s", s, e.msg);
  return d;
}

static void accepted_texts(void **state) {
  (void)state;
  static const char *const texts[] = {
      "null",
      "true",
      "false",
      "0",
      "-0",
      "1",
      "-1",
      "\"\"",
      "[]",
      "{}",
      " \t\r\n[ \t\r\n] \t\r\n",
      "[[]]",
      "[{}]",
      "{\"\":0}",
      "{\"a\":{\"a\":1},\"b\":{\"a\":1}}",
      "[1,2,3]",
      "[null,true,false]",
      "[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]",
      "[\"\\u0000\"]",
      "[\"\\u00e9\\u20AC\\uD834\\udd1e\"]",
      "[\"\\uDBFF\\uDFFF\"]",
      "[\"\\uFFFF\"]",
      "[\"\x7f\"]",
      "[\"\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\", \"\xee\x80\x80\xef\xbf\xbf\"]",
      "[\"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\"]",
      "[0.5]",
      "[0e1]",
      "[0E+1]",
      "[1e-1]",
      "[-0.0]",
      "[1.5e300]",
      "[123.456e-7]",
      "[20e1]",
      "[-0e-0]",
      "[9223372036854775807]",
      "[-9223372036854775808]",
      "[4.9e-324]",
      "[1e-400]", /* underflow is rounding */
      "[1.7976931348623157e308]",
      "{\"a\":1,\"A\":1}",
      "\"/\"",
      "[\"\\/\"]",
      "[\"a\xE2\x80\xA8\"]",
      "[1\n]",
  };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) aci_json_free(good(texts[i]));
}

typedef struct bad {
  const char *s;
  const char *says; /* part of the message */
} bad;

static void refused_texts(void **state) {
  (void)state;
  static const bad texts[] = {
      {"", "ends too early"},
      {" ", "ends too early"},
      {"[", "ends"},
      {"{", "ends"},
      {"[1", "ends"},
      {"[1,", "ends"},
      {"{\"a\"", "ends"},
      {"{\"a\":", "ends"},
      {"{\"a\":1", "ends"},
      {"{\"a\":1,", "ends"},
      {"\"", "ends"},
      {"\"\\", "ends"},
      {"\"a", "ends"},
      {"-", "ends"},
      {"1.", "ends"},
      {"1e", "ends"},
      {"1e+", "ends"},
      {"tru", "true or false"},
      {"fals", "true or false"},
      {"nul", "null"},
      {"nan", "null"},
      {"NaN", "value"},
      {"Infinity", "value"},
      {"-Infinity", "digit"},
      {"True", "value"},
      {"undefined", "value"},
      {"[1,]", "expected a value"},
      {"[,1]", "value"},
      {"[,]", "value"},
      {"[1,,2]", "value"},
      {"[1 2]", "',' or ']'"},
      {"{,}", "key"},
      {"{\"a\":1,}", "key"},
      {"{a:1}", "key"},
      {"{'a':1}", "key"},
      {"{1:1}", "key"},
      {"{\"a\" 1}", "':'"},
      {"{\"a\":}", "value"},
      {"{\"a\",1}", "':'"},
      {"{\"a\":1 \"b\":2}", "',' or '}'"},
      {"[}", "value"},
      {"{]", "key"},
      {"[1}", "',' or ']'"},
      {"{\"a\":1]", "',' or '}'"},
      {"]", "value"},
      {"}", "value"},
      {"[]]", "more text"},
      {"1 2", "more text"},
      {"{}x", "more text"},
      {"truex", "more text"},
      {"[]\x00", NULL},
      {"01", "leading zero"},
      {"-01", "leading zero"},
      {"00", "leading zero"},
      {"+1", "value"},
      {".5", "value"},
      {"-.5", "digit"},
      {"1.e1", "digit"},
      {"1.5e", "ends"},
      {"[1e]", "exponent"},
      {"0x10", "more text"},
      {"1_000", "more"},
      {"--1", "digit"},
      {"[1.]", "after the point"},
      {"[-]", "digit"},
      {"1e999", "too large"},
      {"-1e999", "too large"},
      {"[1e400]", "too large"},
      {"0.4e00669999999999999999999999999999999999999", "too large"},
      {"9223372036854775808", "64 bits"},
      {"-9223372036854775809", "64 bits"},
      {"100000000000000000000", "64 bits"},
      {"\"\t\"", "control"},
      {"\"\n\"", "control"},
      {"\"\x1f\"", "control"},
      {"'a'", "value"},
      {"\"\\x41\"", "escape"},
      {"\"\\a\"", "escape"},
      {"\"\\'\"", "escape"},
      {"\"\\U0041\"", "escape"},
      {"\"\\u004\"", "hex"},
      {"\"\\u00g0\"", "hex"},
      {"\"\\u\"", "hex"},
      {"\"\\u+123\"", "hex"},
      {"\"\\ud800\"", "surrogate"},
      {"\"\\udc00\"", "surrogate"},
      {"\"\\ud800\\ud800\"", "surrogate"},
      {"\"\\ud800x\"", "surrogate"},
      {"\"\\ud800\\n\"", "surrogate"},
      {"\"\\udc00\\ud800\"", "surrogate"},
      {"\"\\ud800\\u00", "surrogate"},
      {"\"\x80\"", "UTF-8"},
      {"\"\xc0\xaf\"", "UTF-8"},
      {"\"\xc1\xbf\"", "UTF-8"},
      {"\"\xe0\x9f\xbf\"", "UTF-8"},
      {"\"\xed\xa0\x80\"", "UTF-8"},
      {"\"\xed\xbf\xbf\"", "UTF-8"},
      {"\"\xf0\x8f\xbf\xbf\"", "UTF-8"},
      {"\"\xf4\x90\x80\x80\"", "UTF-8"},
      {"\"\xf5\x80\x80\x80\"", "UTF-8"},
      {"\"\xff\"", "UTF-8"},
      {"\"\xe2\x82\"", "UTF-8"},
      {"\"\xc3", "UTF-8"},
      {"\"\xe9\"", "UTF-8"},
      {"\xef\xbb\xbf{}", "byte order mark"},
      {"\xff\xfe[\0]\0", "value"},
      {"[1] // x", "more text"},
      {"/* x */ 1", "value"},
      {"# x\n1", "value"},
      {"[1\f]", "',' or ']'"},
      {"\xc2\xa0 1", "value"},
      {"{\"a\":1,\"a\":1}", "duplicate key"},
      {"{\"a\":1,\"b\":2,\"\\u0061\":3}", "duplicate key"},
      {"{\"\":1,\"\":1}", "duplicate key"},
      {"{\"\\u0000\":1,\"\\u0000\":1}", "duplicate key"},
      {"[{\"x\":{\"k\":1,\"k\":2}}]", "duplicate key"},
      {"{\"a\":{\"a\":1},\"a\":1}", "duplicate key"},
      {"{\"\\/\":0,\"/\":0}", "duplicate key"},
      {"{\"\xc3\xa9\":0,\"\\u00E9\":0}", "duplicate key"},
  };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    const char *s = texts[i].s, *says = texts[i].says;
    size_t n = says == NULL ? 3 : strlen(s);
    aci_json_doc *d = (aci_json_doc *)1;
    if (parse_n(s, n, &d) != AC_PARSE) fail_msg("accepted: %s", s);
    assert_null(d);
    if (strstr(e.msg, says == NULL ? "more text" : says) == NULL) fail_msg("%s: said: %s", s, e.msg);
  }
}

static void every_prefix_is_refused(void **state) {
  (void)state;
  static const char whole[] =
      "{\"key\\n\":[1,-2.5e3,true,null,\"\\ud834\\udd1e\xe2\x82\xac\"],\"other\":{\"a\":[[]],\"b\":false}}";
  for (size_t n = 0; n < sizeof whole - 1; n++) {
    aci_json_doc *d;
    assert_int_equal(parse_n(whole, n, &d), AC_PARSE);
  }
  aci_json_free(good(whole));
}

static void errors_say_where(void **state) {
  (void)state;
  aci_json_doc *d;
  assert_int_equal(parse_n("{\n  \"\xc3\xa9\": x}", 11, &d), AC_PARSE);
  assert_non_null(strstr(e.msg, "line 2, column 8 (byte 10)"));
}

static void values_come_out(void **state) {
  (void)state;
  aci_json_doc *d =
      good("{\"i\":-42,\"big\":9007199254740993,\"d\":1.0,\"x\":0.1,\"s\":\"a\\u0000\\u00e9\\ud834\\udd1e\","
           "\"a\":[1,[2,{\"k\":3}],4],\"t\":true,\"n\":null,\"o\":{},\"m\":-0}");
  const aci_json *r = aci_json_root(d);
  assert_int_equal(r->type, ACI_JSON_OBJECT);
  assert_int_equal(r->len, 10);
  assert_int_equal(aci_json_get(d, r, "i")->u.i, -42);
  assert_int_equal(aci_json_get(d, r, "big")->type, ACI_JSON_INT);
  assert_true(aci_json_get(d, r, "big")->u.i == 9007199254740993); /* no detour through a double */
  assert_int_equal(aci_json_get(d, r, "d")->type, ACI_JSON_DOUBLE);
  assert_true(aci_json_get(d, r, "x")->u.f == 0.1);
  const aci_json *s = aci_json_get(d, r, "s");
  assert_int_equal(s->len, 8);
  assert_memory_equal(s->u.s, "a\0\xc3\xa9\xf0\x9d\x84\x9e", 9);
  assert_true(aci_json_get(d, r, "t")->u.b);
  assert_int_equal(aci_json_get(d, r, "n")->type, ACI_JSON_NULL);
  assert_int_equal(aci_json_get(d, r, "o")->len, 0);
  assert_int_equal(aci_json_get(d, r, "m")->type, ACI_JSON_INT);
  assert_null(aci_json_get(d, r, "k"));
  assert_null(aci_json_get(d, r, ""));
  const aci_json *a = aci_json_get(d, r, "a");
  assert_int_equal(a->len, 3);
  int n = 0;
  for (const aci_json *v = aci_json_first(a), *end = aci_json_after(a); v != end; v = aci_json_after(v)) n++;
  assert_int_equal(n, 3);
  assert_null(aci_json_get(d, a, "k"));
  aci_json_free(d);
}

static void doubles_round_correctly(void **state) {
  (void)state;
  static const struct {
    const char *s;
    double v;
  } cases[] = {
      {"9007199254740993.0", 9007199254740992.0},
      {"2.2250738585072011e-308", 0x0.fffffffffffffp-1022},
      {"1e23", 1e23},
      {"123456789012345678901234567890.0", 0x1.8ee90ff6c373ep+96},
      {"5e-324", 0x1p-1074},
      {"2.4703282292062327e-324", 0.0},
      {"0.1e1", 1.0},
      {"179769313486231570e291", DBL_MAX},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    aci_json_doc *d = good(cases[i].s);
    assert_memory_equal(&aci_json_root(d)->u.f, &cases[i].v, sizeof(double));
    aci_json_free(d);
  }
}

static char *repeat(const char *a, size_t n, const char *mid, const char *b) {
  size_t la = strlen(a), lb = strlen(b), lm = strlen(mid);
  char *s = malloc(n * (la + lb) + lm + 1), *p = s;
  for (size_t i = 0; i < n; i++, p += la) memcpy(p, a, la);
  memcpy(p, mid, lm), p += lm;
  for (size_t i = 0; i < n; i++, p += lb) memcpy(p, b, lb);
  *p = '\0';
  return s;
}

static void limits(void **state) {
  (void)state;
  aci_json_doc *d;
  char *s = repeat("[", 64, "1", "]");
  aci_json_free(good(s));
  free(s);
  s = repeat("[", 65, "1", "]");
  assert_int_equal(parse_n(s, strlen(s), &d), AC_PARSE);
  assert_non_null(strstr(e.msg, "deeper than 64"));
  free(s);
  s = repeat("{\"a\":", 1000000, "1", "}"); /* refused at the limit, whatever follows */
  assert_int_equal(parse_n(s, strlen(s), &d), AC_PARSE);
  free(s);
  /* no C stack is used, so a caller may allow any depth */
  aci_json_opts deep = {.max_bytes = (size_t)1 << 30, .max_depth = 500000};
  s = repeat("[", 500000, "1", "]");
  assert_int_equal(aci_json_parse(s, strlen(s), &deep, &d, &e), AC_OK);
  aci_json_free(d);
  free(s);
  aci_json_opts small = {.max_bytes = 4, .max_depth = 4};
  assert_int_equal(aci_json_parse("[1,2]", 5, &small, &d, &e), AC_PARSE);
  assert_non_null(strstr(e.msg, "more than the 4"));
  assert_int_equal(aci_json_parse("[12]", 4, &small, &d, &e), AC_OK);
  aci_json_free(d);
  s = repeat("1", 1001, "", "");
  aci_json_opts wide = ACI_JSON_CONFIG;
  wide.wide_integers = true;
  assert_int_equal(aci_json_parse(s, 1001, &wide, &d, &e), AC_PARSE);
  free(s);
  assert_int_equal(aci_json_parse("1000000000000000019884624838656", 31, &wide, &d, &e), AC_OK);
  assert_true(aci_json_root(d)->type == ACI_JSON_DOUBLE && aci_json_root(d)->u.f == 1e30);
  aci_json_free(d);
}

/* Large objects, hashed: all found, nothing else found, repeats found wherever they hide; time linear in the
 * size. */
static double large_object(size_t n) {
  aci_strbuf b = {0};
  aci_strbuf_putc(&b, '{');
  for (size_t i = 0; i < n; i++) aci_strbuf_printf(&b, "%s\"k%zu\":%zu", i > 0 ? "," : "", i, i);
  aci_strbuf_putc(&b, '}');
  assert_false(b.failed);
  aci_json_doc *d;
  clock_t t = clock();
  assert_int_equal(aci_json_parse(b.s, b.len, NULL, &d, &e), AC_OK);
  double took = (double)(clock() - t);
  const aci_json *r = aci_json_root(d);
  assert_int_equal(r->len, n);
  char key[32];
  for (size_t i = 0; i < n; i++) {
    snprintf(key, sizeof key, "k%zu", i);
    assert_int_equal(aci_json_get(d, r, key)->u.i, i);
  }
  for (size_t i = n; i < n + 100; i++) {
    snprintf(key, sizeof key, "k%zu", i);
    assert_null(aci_json_get(d, r, key));
  }
  aci_json_free(d);
  b.len--;
  aci_strbuf_printf(&b, ",\"\\u006b%zu\":0}", n / 2);
  assert_int_equal(aci_json_parse(b.s, b.len, NULL, &d, &e), AC_PARSE);
  assert_non_null(strstr(e.msg, "duplicate key"));
  aci_strbuf_fini(&b);
  return took;
}

static void large_objects_are_hashed(void **state) {
  (void)state;
  static const size_t sizes[] = {1, 8, 9, 10, 100};
  for (int i = 0; i < 5; i++) large_object(sizes[i]);
  double small = large_object(20000), large = large_object(200000);
  assert_true(large <
              60 * (small + CLOCKS_PER_SEC / 500)); /* a quadratic table would take 100 times as long */
}

/* Many objects with the same keys, nested and side by side: dropped keys must not linger, outer ones must not
 * vanish. */
static void keys_have_scopes(void **state) {
  (void)state;
  aci_strbuf b = {0};
  aci_strbuf_puts(&b, "{\"outer\":[");
  for (int i = 0; i < 3000; i++)
    aci_strbuf_printf(&b, "%s{\"outer\":%d,\"b\":{\"outer\":1,\"k%d\":2},\"k%d\":3}", i > 0 ? "," : "", i, i,
                      i);
  aci_strbuf_puts(&b, "],\"last\":1");
  size_t stem = b.len;
  aci_strbuf_puts(&b, "}");
  aci_json_free(good(b.s));
  b.len = stem;
  aci_strbuf_puts(&b, ",\"outer\":2}");
  aci_json_doc *d;
  assert_int_equal(parse_n(b.s, b.len, &d), AC_PARSE);
  assert_non_null(strstr(e.msg, "duplicate key \"outer\""));
  aci_strbuf_fini(&b);
}

/* ---- events ---- */
static ac_status trace(void *user, const aci_json_event *ev, ac_err *err) {
  aci_strbuf *b = user;
  (void)err;
  switch (ev->type) {
    case ACI_JSON_OBJECT: aci_strbuf_printf(b, "{%d@%zu ", ev->depth, ev->offset); break;
    case ACI_JSON_OBJECT_END: aci_strbuf_printf(b, "}%d ", ev->depth); break;
    case ACI_JSON_ARRAY: aci_strbuf_printf(b, "[%d ", ev->depth); break;
    case ACI_JSON_ARRAY_END: aci_strbuf_printf(b, "]%d ", ev->depth); break;
    case ACI_JSON_KEY: aci_strbuf_printf(b, "k:%.*s ", (int)ev->len, ev->text); break;
    case ACI_JSON_STRING: aci_strbuf_printf(b, "s:%.*s ", (int)ev->len, ev->text); break;
    case ACI_JSON_INT: aci_strbuf_printf(b, "i:%lld(%.*s) ", (long long)ev->i, (int)ev->len, ev->text); break;
    case ACI_JSON_DOUBLE: aci_strbuf_printf(b, "f:%g ", ev->f); break;
    case ACI_JSON_BOOL: aci_strbuf_puts(b, ev->b ? "T " : "F "); break;
    case ACI_JSON_NULL: aci_strbuf_puts(b, "N "); break;
  }
  return AC_OK;
}

static ac_status stop_at_null(void *user, const aci_json_event *ev, ac_err *err) {
  ++*(int *)user;
  return ev->type == ACI_JSON_NULL ? AC_FAIL(err, INTERRUPTED, "enough") : AC_OK;
}

static void events_come_in_order(void **state) {
  (void)state;
  static const char s[] = " {\"a\":[-0,1e2,{}],\"\\u0062\":\"x\\ty\",\"c\":[true,null]}";
  aci_strbuf b = {0};
  assert_int_equal(aci_json_read(s, sizeof s - 1, NULL, trace, &b, &e), AC_OK);
  assert_string_equal(b.s, "{0@1 k:a [1 i:0(-0) f:100 {2@14 }2 ]1 k:b s:x\ty k:c [1 T N ]1 }0 ");
  aci_strbuf_fini(&b);
  int n = 0;
  assert_int_equal(aci_json_read("[1,null,2]", 10, NULL, stop_at_null, &n, &e), AC_INTERRUPTED);
  assert_int_equal(n, 3);
  assert_string_equal(e.msg, "enough");
}

static void mutations_do_no_harm(void **state) {
  (void)state;
  static const char base[] =
      "{\"a\":[1,-2.5e3,true,null,\"\\ud834\\udd1e\"],\"b\":{\"c\":\"\\u0041\xe2\x82\xac\",\"d\":[[],{}]}}";
  char s[sizeof base];
  uint32_t r = 7;
  int ok = 0;
  for (int i = 0; i < 50000; i++) {
    memcpy(s, base, sizeof base);
    for (int k = 0; k < 1 + i % 3; k++) {
      r = r * 1664525u + 1013904223u;
      size_t at = (size_t)((uint64_t)r * (sizeof base - 1) >> 32);
      r = r * 1664525u + 1013904223u;
      s[at] = r >> 31 ? (char)(r >> 20) : "[]{},:\"\\0e.-u"[(r >> 8) % 13];
    }
    aci_json_doc *d;
    if (parse_n(s, sizeof base - 1, &d) == AC_OK) ok++, aci_json_free(d);
  }
  assert_true(ok > 100 && ok < 40000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(accepted_texts),
      cmocka_unit_test(refused_texts),
      cmocka_unit_test(every_prefix_is_refused),
      cmocka_unit_test(errors_say_where),
      cmocka_unit_test(values_come_out),
      cmocka_unit_test(doubles_round_correctly),
      cmocka_unit_test(limits),
      cmocka_unit_test(large_objects_are_hashed),
      cmocka_unit_test(keys_have_scopes),
      cmocka_unit_test(events_come_in_order),
      cmocka_unit_test(mutations_do_no_harm),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
