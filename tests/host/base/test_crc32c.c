/* CRC-32C against published vectors and against the definition, bit by bit. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"

static uint32_t by_definition(const unsigned char *p, size_t n) {
  uint32_t c = 0xFFFFFFFFu;
  for (size_t i = 0; i < n; i++) {
    c ^= p[i];
    for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0x82F63B78u : c >> 1;
  }
  return ~c;
}

static void published(void **state) {
  (void)state;
  unsigned char b[32];
  assert_int_equal(aci_crc32c(0, "", 0), 0);
  assert_int_equal(aci_crc32c(0, "123456789", 9), 0xE3069283u);
  memset(b, 0, 32); /* RFC 3720, B.4 */
  assert_int_equal(aci_crc32c(0, b, 32), 0x8A9136AAu);
  memset(b, 0xFF, 32);
  assert_int_equal(aci_crc32c(0, b, 32), 0x62A8AB43u);
  for (int i = 0; i < 32; i++) b[i] = (unsigned char)i;
  assert_int_equal(aci_crc32c(0, b, 32), 0x46DD794Eu);
  assert_int_equal(aci_crc32c_mask(aci_crc32c(0,
                                              "\x1a\x11"
                                              "CRC test, one two",
                                              19)),
                   0x5794D08Au);
}

static void every_length_and_alignment(void **state) {
  (void)state;
  enum { N = 40000 };
  unsigned char *p = malloc(N + 16);
  uint32_t r = 3;
  for (int i = 0; i < N + 16; i++) p[i] = (unsigned char)((r = r * 1664525u + 1013904223u) >> 24);
  for (size_t n = 0; n < 70; n++)
    for (size_t a = 0; a < 9; a++) {
      assert_int_equal(aci_crc32c(0, p + a, n), by_definition(p + a, n));
      assert_int_equal(aci_crc32c_by_table(0, p + a, n), by_definition(p + a, n));
    }
  static const size_t longer[] = {4096, 12287, 12288, 12289, 24576 + 5, N};
  for (int i = 0; i < 6; i++)
    assert_int_equal(aci_crc32c(0, p + i, longer[i]), by_definition(p + i, longer[i]));
  for (size_t cut = 0; cut <= N; cut += 3331) {
    uint32_t whole = by_definition(p, N), a = aci_crc32c(0, p, cut), b = aci_crc32c(0, p + cut, N - cut);
    assert_int_equal(aci_crc32c(a, p + cut, N - cut), whole);
    assert_int_equal(aci_crc32c_combine(a, b, N - cut), whole);
  }
  free(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(published),
                                     cmocka_unit_test(every_length_and_alignment)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
