/* Unicode's tables: known facts of each version that is asked, forms that belong together, clusters of characters, UTF-8. */
#include "support/test.h"

#include <string.h>

#include "text/unicode.h"

static ac_err e;

static int open_tables(void **state) {
  assert_ok(aci_uni_open(&e), e);
  return 0;
}

static void categories(void **state) {
  assert_int_equal(aci_uni_category_of('A', ACI_UNI_8), ACI_LU);
  assert_int_equal(aci_uni_category_of('_', ACI_UNI_8), ACI_PC);
  assert_int_equal(aci_uni_category_of(0x4E2D, ACI_UNI_8), ACI_LO);
  assert_int_equal(aci_uni_category_of(0x10FFFF, ACI_UNI_17), ACI_CN);
  assert_int_equal(aci_uni_category_of(0x110000, ACI_UNI_17), ACI_CN);
  /* came with 9.0, 16.0 and 17.0 */
  assert_int_equal(aci_uni_category_of(0x1E900, ACI_UNI_8), ACI_CN);
  assert_int_equal(aci_uni_category_of(0x1E900, ACI_UNI_9), ACI_LU);
  assert_int_equal(aci_uni_category_of(0x10D40, ACI_UNI_9), ACI_CN);
  assert_int_equal(aci_uni_category_of(0x10D40, ACI_UNI_16), ACI_ND);
  assert_int_equal(aci_uni_category_of(0x11DE0, ACI_UNI_16), ACI_CN);
  assert_int_equal(aci_uni_category_of(0x11DE0, ACI_UNI_17), ACI_ND);
  /* changed */
  assert_int_equal(aci_uni_category_of(0x166D, ACI_UNI_8), ACI_PO);
  assert_int_equal(aci_uni_category_of(0x166D, ACI_UNI_16), ACI_SO);
  /* runs cover all code points and are of one category each */
  uint32_t n = 0, at = 0, first, last;
  for (; aci_uni_run(n, &first, &last); n++) {
    assert_int_equal(first, at);
    assert_true(last >= first);
    for (uint32_t x = first; x <= last; x += 1 + (last - first) / 50)
      for (int v = ACI_UNI_16; v <= ACI_UNI_17; v++)
        assert_int_equal(aci_uni_category_of(x, v), aci_uni_category_of(first, v));
    at = last + 1;
  }
  assert_int_equal(at, ACI_UNI_LAST + 1);
  assert_in_range(n, 3000, 6000);
}

static void letters_and_blanks(void **state) {
  uint32_t more;
  assert_true(aci_uni_is_space(0x3000) && aci_uni_is_space('\v') && !aci_uni_is_space(0x180E) &&
              !aci_uni_is_space(0x200B));
  assert_true(aci_uni_is_word('_') && aci_uni_is_word(0x24B6) && !aci_uni_is_word('-') &&
              !aci_uni_is_word(0x2460));
  assert_true(aci_uni_is_punctuation('$') && aci_uni_is_punctuation(0x2014) &&
              !aci_uni_is_punctuation(0x20AC));
  assert_true(aci_uni_is_combining(0x301) && !aci_uni_is_combining('a'));
  assert_int_equal(aci_uni_lower('Q', &more), 'q');
  assert_int_equal(aci_uni_lower(0x410, &more), 0x430);
  assert_int_equal(aci_uni_lower(0x130, &more), 'i');
  assert_int_equal(more, 0x307);
  assert_int_equal(aci_uni_lower(0x3A3, &more), 0x3C3);
  assert_int_equal(aci_uni_lower(0x16EA0, &more), 0x16EBB);
}

static void forms(void **state) {
  uint32_t out[ACI_UNI_DECOMPOSED];
  assert_int_equal(aci_uni_decompose(0x1EDD, false, out), 3); /* o with horn and grave */
  assert_true(out[0] == 'o' && out[1] == 0x31B && out[2] == 0x300);
  assert_int_equal(aci_uni_decompose(0xFB01, false, out), 1);
  assert_int_equal(aci_uni_decompose(0xFB01, true, out), 2);
  assert_int_equal(aci_uni_decompose(0xFDFA, true, out), 18); /* the longest */
  assert_int_equal(aci_uni_decompose(0xD55C, false, out), 3);
  assert_int_equal(aci_uni_compose(0x1112, 0x1161), 0xD558);
  assert_int_equal(aci_uni_compose(0xD558, 0x11AB), 0xD55C);
  assert_int_equal(aci_uni_compose('e', 0x301), 0xE9);
  assert_int_equal(aci_uni_compose('e', 'e'), 0);
  assert_int_equal(aci_uni_compose(0x915, 0x93C), 0); /* excluded */
  assert_int_equal(aci_uni_combining_class(0x327), 202);
  /* a composed character that is not excluded comes back from its parts */
  uint32_t n = 0;
  for (uint32_t c = 0; c <= ACI_UNI_LAST; c++) {
    const int k = aci_uni_decompose(c, false, out);
    assert_in_range(k, 1, 4);
    uint32_t together = out[0];
    for (int i = 1; i < k && together != 0; i++) together = aci_uni_compose(together, out[i]);
    if (k > 1 && together == c) n++;
    else if (k > 1 && together != 0) assert_int_not_equal(together, out[0]);
  }
  assert_in_range(n, 11172 + 900, 11172 + 1000);
}

static void count_pair(void *user, uint32_t a, uint32_t b) {
  uint32_t *n = user;
  assert_true(a != b && a <= ACI_UNI_LAST && b <= ACI_UNI_LAST);
  ++*n;
}

static void clusters(void **state) {
  static const struct {
    const char *s;
    size_t n;
  } cases[] = {{"ab", 1},
               {"e\xCC\x81x", 3},
               {"\r\nx", 2},
               {"\r\r", 1},
               {"\xF0\x9F\x87\xA9\xF0\x9F\x87\xAA\xF0\x9F\x87\xA9", 8}, /* two of three regional indicators */
               {"\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7x", 11},   /* pictographs joined */
               {"\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB\xE1\x84\x92", 9}, /* a syllable of three */
               {"a\xE2\x80\x8D\xF0\x9F\x91\xA7", 4}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    assert_int_equal(aci_uni_grapheme(cases[i].s, strlen(cases[i].s)), cases[i].n);
  uint32_t n = 0, first, last;
  aci_uni_case_pairs(count_pair, &n);
  assert_in_range(n, 1400, 1700);
  const int han = aci_uni_script("Han", 3);
  assert_true(han > 0 && aci_uni_script_range(han, 0, &first, &last) && first == 0x2E80);
  assert_int_equal(aci_uni_script("Klingon", 7), 0);
}

static void utf8(void **state) {
  assert_true(aci_utf8_valid("plain and long enough for words \xC3\xA9", 34));
  assert_false(aci_utf8_valid("plain and long enough for words \xC3", 33));
  assert_false(aci_utf8_valid("\xED\xA0\x80", 3));
  for (uint32_t c = 0; c <= ACI_UNI_LAST; c += c < 0x3000 ? 1 : 257) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    char s[4];
    const int n = aci_utf8_put(s, c);
    const char *at = s, *end = s + n;
    assert_int_equal(aci_utf8_next(&at), c);
    assert_ptr_equal(at, end);
    assert_int_equal(aci_utf8_before(&at), c);
    assert_ptr_equal(at, s);
    assert_int_equal(aci_utf8_size((unsigned char)s[0]), n);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(categories), cmocka_unit_test(letters_and_blanks),
                                     cmocka_unit_test(forms), cmocka_unit_test(clusters),
                                     cmocka_unit_test(utf8)};
  return cmocka_run_group_tests(tests, open_tables, NULL);
}
