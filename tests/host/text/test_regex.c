/* Regular expressions: what matches where, what is refused and why, and that no pattern takes more than linear time. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/regex.h"

static ac_err e;

/* All matches as "0-2 3-5 ", searching on behind each, one byte further behind an empty one. */
static char *matches(const char *pattern, const char *text) {
  static char out[4096];
  aci_regex *r;
  if (aci_regex_new(pattern, strlen(pattern), &r, &e) != AC_OK) {
    snprintf(out, sizeof out, "refused: %s", e.msg);
    return out;
  }
  aci_regex_cache *c = aci_regex_cache_new(r);
  assert_non_null(c);
  const size_t n = strlen(text);
  char *exact = malloc(n + (n == 0)); /* without a zero, so that a sanitizer sees any step beyond */
  memcpy(exact, text, n);
  size_t k = 0, begin, end;
  bool found;
  out[0] = 0;
  aci_regex_begin(c, n);
  for (size_t at = 0; at <= n; at = end > at || begin < end ? end : end + 1) {
    assert_ok(aci_regex_find(c, exact, n, at, &begin, &end, &found, &e), e);
    if (!found) break;
    assert_true(begin >= at && begin <= end && end <= n);
    k += (size_t)snprintf(out + k, sizeof out - k, "%zu-%zu ", begin, end);
    if (begin == end) end = begin, at = end;
  }
  free(exact);
  aci_regex_cache_free(c);
  aci_regex_free(r);
  return out;
}

static void found(void **state) {
  static const struct {
    const char *pattern, *text, *where;
  } cases[] = {
      {"a", "banana", "1-2 3-4 5-6 "},
      {"ab|a", "aab", "0-1 1-3 "},
      {"a|ab", "ab", "0-1 "}, /* the first alternative wins */
      {"(?:a|ab)c", "abc", "0-3 "},
      {"a*?b|a", "aab", "0-3 "},
      {"a+?", "aa", "0-1 1-2 "},
      {"a{2}", "aaaaa", "0-2 2-4 "},
      {"a{2,3}", "aaaaa", "0-3 3-5 "},
      {"a{,2}b", "aaab", "1-4 "},
      {"a{x}", "a{x}", "0-4 "},
      {"[b-d]+", "abcde", "1-4 "},
      {"[^b-d]+", "abcde", "0-1 4-5 "},
      {"[a-c&&[^b]]+", "abc", "0-1 2-3 "},
      {"[]a]+", "a]", "0-2 "},
      {"[a-]+", "-a-", "0-3 "},
      {"[\\p{L}&&\\P{Lu}]+", "aBc", "0-1 2-3 "},
      {"[^\\W\\d_]+", "a1_b", "0-1 3-4 "},
      {"[[:digit:]x]+", "a1x", "1-3 "},
      {"\\p{Lu}\\p{^Lu}", "aBc", "1-3 "},
      {"\\p{Han}", "a\xE4\xB8\xAD", "1-4 "},
      {"(?i:'S|stra\xC3\x9F)", "'s STRA\xE1\xBA\x9E", "0-2 3-10 "},
      {"(?i)k", "K\xE2\x84\xAA", "0-1 1-4 "}, /* the sign for Kelvin */
      {"a(?i)b|c", "aBaC", "0-2 2-4 "},
      {"(?i:[^a])", "Ab", "1-2 "},
      {".", "\na", "1-2 "},
      {"(?m:.)", "\na", "0-1 1-2 "},
      {"^.|.$", "ab\nc", "0-1 1-2 3-4 "},
      {"\\Aa|b\\z", "aab b", "0-1 4-5 "},
      {"\\bb|a\\B", "ab b", "0-1 3-4 "},
      {"\\s+(?!\\S)|\\s+", "a   b", "1-3 3-4 "},
      {"a(?=b)", "aab", "1-2 "},
      {"a(?=b|\\z)", "aabc a", "1-2 5-6 "},
      {"(?<=a)b", "bab", "2-3 "},
      {"(?<!a)b", "bab", "0-1 "},
      {"\\s*[\\r\\n]+|\\s+", " \n x ", "0-2 2-3 4-5 "},
      {"[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+", " ab,c", "0-3 3-5 "},
      {"\\x61\\x{62}\\u0063\\t", "abc\t", "0-4 "},
      {"\\-\\.\\[", "-.[", "0-3 "},
      {"(?#words)a", "a", "0-1 "},
      {"(?<name>a)", "a", "0-1 "},
      {"((a*)*)*b", "aab", "0-3 "},
      {"x*", "axb", "0-0 1-2 2-2 3-3 "},
      /* lookaround over more than one character, here and below as the package `tokenizers` has it */
      {"\\d{1,3}(?=(?:\\d{3})*\\b)", "1234567 89", "0-1 1-4 4-7 8-10 "},
      {"\\p{N}{1,3}(?=(?:\\p{N}{3})*(?:\\P{N}|$))", "12345a", "0-2 2-5 "},
      {"(?=(\\d{3})+(?!\\d))", "1234567", "1-1 4-4 "},
      {"(?<=\\d)(?=(?:\\d\\d\\d)+(?:\\D|$))", "12345", "2-2 "},
      {"(?<=a|bc)d", "adcdbcd", "1-2 6-7 "},
      {"(?<!a|bc)d", "adcdbcd", "3-4 "},
      {"a(?!b(?=c))", "abcabd", "3-4 "},
      {"(?!.*x)[a-c]", "axbc", "2-3 3-4 "},
      {"(?=ab)|b", "ab", "0-0 1-2 "},
      {"(?<=\xC3\xA9.)a", "\xC3\xA9xa", "3-4 "},
      {"\\Z|a\\z", "a\n", "1-1 2-2 "},
      /* atomic groups and possessive repetition */
      {"\\s++$|\\s+", " a  ", "0-1 2-4 "},
      {"(?>a|ab)c", "abc ac", "4-6 "},
      {"(?>ab|a)c", "abc ac", "0-3 4-6 "},
      {"(?>a*)ab|b", "aab", "2-3 "},
      {"(?>a*?)b", "aab", "2-3 "},
      {"(?>a*b|a)a", "aaba", "0-4 "},
      {"(?>\\d{1,2})\\d", "12 123", "3-6 "},
      {"(?>\\d{1,2}?)\\d", "12", "0-2 "},
      {"a++a|aa", "aaa", "0-2 "},
      {"a?+a", "aab", "0-2 "},
      {"(?:ab)++a", "ababa", "0-5 "},
      {"(?>(?>a|ab)|abc)d", "abcd ad", "5-7 "},
      /* names */
      {"\\w+", "m\xC2\xB2 \xC2\xBD", "0-3 4-6 "},
      {"[\\w]+", "m\xC2\xB2", "0-1 "},
      {"\\W", "\xC2\xB9 ", "2-3 "},
      {"[[:alpha:]]+", "a1\xCD\x85", "0-1 2-4 "},
      {"[[:punct:]]", ".$a", "0-1 1-2 "},
      {"\\p{Punct}", ".$a", "0-1 "},
      {"\\p{Alnum}+\\p{Upper}", "a1B", "0-3 "},
      {"[[:^digit:][:ascii:]&&[:graph:]]", "1 \xC3\xA9", "0-1 2-4 "},
      {"\\R", "\r\n\n\xE2\x80\xA8", "0-2 2-3 3-6 "},
      {"\\R\\n", "\r\n", ""},
      {"\\N\\O", "a\nb", "0-2 "},
      {"(?x) a + # words\n b [ c]", "aab ", "0-4 "},
      {"^", "a\nb\n", "0-0 2-2 "},
      /* characters that are several when case is ignored */
      {"(?i:ss)", "\xC3\x9F SS \xE1\xBA\x9E", "0-2 3-5 6-9 "},
      {"(?i:\xC3\x9F)", "ss\xC3\x9F", "0-2 2-4 "},
      {"(?i:[\xC3\x9F])", "ss", "0-2 "},
      {"(?i:ss?)", "\xC3\x9Fs", "2-3 "},
      {"(?i:sss)", "s\xC3\x9F\xC3\x9Fs", "3-6 "},
      {"(?i:ffi)", "\xEF\xAC\x83 \xEF\xAC\x80i", "0-3 "},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const char *got = matches(cases[i].pattern, cases[i].text);
    if (strcmp(got, cases[i].where) != 0)
      fail_msg("%s in %s: %s instead of %s", cases[i].pattern, cases[i].text, got, cases[i].where);
  }
}

static void refused(void **state) {
  static const struct {
    const char *pattern, *why;
  } cases[] = {
      {"(a", "byte 2: ( without )"},
      {"a)", "byte 1: ) without ("},
      {"[a", "[ without ]"},
      {"*a", "nothing to repeat"},
      {"a{3,2}", "wrong order"},
      {"a{1001}", "more than 1000"},
      {"\\1", "back references"},
      {"\\X", "escape is not supported"},
      {"(?=aa)(?=bb)(?=cc)(?=dd)(?=ee)(?=ff)(?=gg)(?=hh)(?=ii)", "more than 8 lookarounds"},
      {"(?>(?:a|ab)*)", "more than one way"},
      {"(?:a*)++", "more than one way"},
      {"(?~a)", "kind of group"},
      {"[[:foo:]]", "[:name:]"},
      {"\\p{Nope}", "not known"},
      {"\\pL", "in braces"},
      {"((((((((((((((((a++b)++c)++d)++e)++f)++g)++h)++i)++j)++k)++l)++m)++n)++o)++p)++q)++", "more than 8"},
      {"((((((((((((((((((a)++)++)++)++)++)++)++)++)++)++)++)++)++)++)++)++)++)++)++", "more than 8"},
      {"[z-a]", "backwards"},
      {"\\x{110000}", "code point"},
      {"a\\", "backslash"},
      {"(((a{500}){500}){500})", "too large"},
      {"(((){999}){999}){999}", "too large"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const char *got = matches(cases[i].pattern, "");
    if (strncmp(got, "refused", 7) != 0 || strstr(got, cases[i].why) == NULL)
      fail_msg("%s: %s, not %s", cases[i].pattern, got, cases[i].why);
  }
  aci_regex *r;
  char *deep = malloc(1000);
  memset(deep, '(', 1000);
  assert_fails(aci_regex_new(deep, 1000, &r, &e), PARSE, "groups nest", e);
  memset(deep, '[', 1000);
  assert_fails(aci_regex_new(deep, 1000, &r, &e), PARSE, "classes nest", e);
  free(deep);
}

/* A long alternative, a long literal, a long class: lists, not depth. */
static void long_patterns(void **state) {
  char *p = malloc(60001);
  for (int i = 0; i < 60000; i++) p[i] = i % 2 ? '|' : 'a';
  aci_regex *r;
  assert_ok(aci_regex_new(p, 20000, &r, &e), e);
  aci_regex_free(r);
  memset(p, 'a', 30000);
  assert_ok(aci_regex_new(p, 30000, &r, &e), e);
  aci_regex_free(r);
  memset(p, 'a', 60000);
  assert_fails(aci_regex_new(p, 60000, &r, &e), PARSE, "large", e);
  free(p);
}

/* Patterns that take backtracking engines exponential or quadratic time. Here a budget of steps decides, so the test needs no
 * clock: without one it would not end. */
static void time_is_linear(void **state) {
  static const char *const patterns[] = {
      "(a+)+b", "(a|a)*b", "(a|aa)+$", "\\s+$", "(x+x+)+y", "(a?){30}a{30}", "[ab]*a[ab]{12}", "(\\w|\\d)*c",
      "a+b", "^(([a-z])+.)+[A-Z]([a-z])+$",
      /* each place looks at all the rest, or at all before */
      "a(?=a*q)", "a(?!a*b)", "(?<=^a*)a", ".(?=(?:aaa)*\\b)", "(?=(?=.*a).*q).", "(?>a|aa|aaa)b", "a++b",
      "a(?=[ab]*a[ab]{12}q)", "(?=aa)(?=.a)(?=.{2}a)(?=.{3}a)(?=.{4}a)(?=.{5}a)(?=.{6}a)(?=.{7}a)."};
  const size_t n = 200000;
  char *text = malloc(n);
  for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
    for (int k = 0; k < 3; k++) {
      memset(text, k == 0 ? 'a' : k == 1 ? ' ' : 'x', n);
      text[n - 1] = 'q';
      aci_regex *r;
      assert_ok(aci_regex_new(patterns[i], strlen(patterns[i]), &r, &e), e);
      aci_regex_cache *c = aci_regex_cache_new(r);
      assert_non_null(c);
      aci_regex_begin(c, n);
      size_t begin, end = 0;
      bool again = true;
      for (size_t at = 0; again && at<n; at = end> at ? end : at + 1)
        assert_ok(aci_regex_find(c, text, n, at, &begin, &end, &again, &e), e);
      aci_regex_cache_free(c);
      aci_regex_free(r);
    }
  }
  /* each match looks at all the rest */
  aci_regex *r;
  assert_ok(aci_regex_new("a.*z|a", 6, &r, &e), e);
  aci_regex_cache *c = aci_regex_cache_new(r);
  memset(text, 'a', n);
  aci_regex_begin(c, n);
  size_t at = 0, begin, end;
  bool again = true;
  ac_status st = AC_OK;
  while (st == AC_OK && again && at < n) {
    st = aci_regex_find(c, text, n, at, &begin, &end, &again, &e);
    at = end;
  }
  assert_int_equal(st, AC_UNSUPPORTED);
  ac_test_contains(e.msg, "64 steps per byte", __FILE__, __LINE__);
  aci_regex_cache_free(c);
  aci_regex_free(r);
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(found), cmocka_unit_test(refused),
                                     cmocka_unit_test(long_patterns), cmocka_unit_test(time_is_linear)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
