/* CRC-32 against the check value of its standard and against the definition, bit by bit: every length and
 * alignment around the pieces that the fast way takes, in one call and in several. */
#include "support/test.h"

#include <string.h>

#include "base/crc32.h"

static uint32_t by_definition(const unsigned char *p, size_t n) {
  uint32_t c = 0xffffffff;
  for (size_t i = 0; i < n; i++) {
    c ^= p[i];
    for (int k = 0; k < 8; k++) c = c >> 1 ^ (c & 1 ? 0xEDB88320u : 0);
  }
  return ~c;
}

static void known_values(void **state) {
  assert_int_equal(aci_crc32(0, "", 0), 0);
  assert_int_equal(aci_crc32(0, "123456789", 9), 0xCBF43926u);
}

static void every_length(void **state) {
  static unsigned char bytes[5000];
  uint64_t seed = 7;
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)ac_test_random(&seed);
  for (size_t at = 0; at < 3; at++)
    for (size_t n = 0; n < 400; n++) {
      const uint32_t want = by_definition(bytes + at, n);
      assert_int_equal(aci_crc32(0, bytes + at, n), want);
      const size_t cut = n * 2 / 3;
      assert_int_equal(aci_crc32(aci_crc32(0, bytes + at, cut), bytes + at + cut, n - cut), want);
    }
  assert_int_equal(aci_crc32(0, bytes, sizeof bytes), by_definition(bytes, sizeof bytes));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(known_values), cmocka_unit_test(every_length)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
