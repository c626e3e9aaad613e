/* HMAC-SHA-256 against the vectors of RFC 4231, and random bytes. */
#include "support/test.h"

#include <stdio.h>
#include <string.h>

#include "base/hmac.h"

static void hex(const uint8_t *p, char *out) {
  for (int i = 0; i < ACI_HMAC; i++) snprintf(out + 2 * i, 3, "%02x", p[i]);
}

static void vectors(void **state) {
  static const struct {
    uint8_t key_byte;
    size_t key_bytes;
    const char *key, *text, *mac;
  } rows[] = {
      {0x0b, 20, NULL, "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
      {0, 4, "Jefe", "what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
      {0xaa, 131, NULL, "Test Using Larger Than Block-Size Key - Hash Key First",
       "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
  };
  const char *version;
  ac_err e;
  if (aci_hmac_library(&version, &e) != AC_OK) skip();
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    uint8_t key[200], mac[ACI_HMAC], other[ACI_HMAC];
    char text[2 * ACI_HMAC + 1];
    memset(key, rows[i].key_byte, sizeof key);
    if (rows[i].key != NULL) memcpy(key, rows[i].key, rows[i].key_bytes);
    assert_ok(aci_hmac(key, rows[i].key_bytes, rows[i].text, strlen(rows[i].text), mac, &e), e);
    hex(mac, text);
    assert_string_equal(text, rows[i].mac);
    memcpy(other, mac, sizeof other);
    assert_true(aci_hmac_equal(mac, other));
    for (int bit = 0; bit < 8 * ACI_HMAC; bit++) {
      other[bit / 8] ^= (uint8_t)(1u << bit % 8);
      assert_false(aci_hmac_equal(mac, other));
      other[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
  }
}

static void random_bytes(void **state) {
  uint8_t a[64], b[64];
  ac_err e;
  assert_ok(aci_random_bytes(a, sizeof a, &e), e);
  assert_ok(aci_random_bytes(b, sizeof b, &e), e);
  assert_memory_not_equal(a, b, sizeof a);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(vectors), cmocka_unit_test(random_bytes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
