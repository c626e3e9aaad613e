/* Long reads in blocks: bytes and CRC-32C equal those of one read, on a team and without one, at every place and length beside a block's
 * ends; of several errors that of the first byte is told. tier: every change, memory */
#include "support/test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "file/io.h"

enum { MIB = 1 << 20, ALL = 5 * MIB + 12345 };
static unsigned char *bytes, *got;
static char *path;
static int fd;
static ac_team *team;

static int begin(void **state) {
  uint64_t seed = 7, n;
  ac_err e;
  (void)state;
  bytes = malloc(ALL);
  got = malloc(ALL);
  for (int i = 0; i < ALL; i++) bytes[i] = (unsigned char)(ac_test_random(&seed) >> 24);
  path = ac_test_tmp_path("long");
  ac_test_write(path, bytes, ALL);
  assert_ok(aci_open_read(path, &fd, &n, &e), e);
  assert_int_equal(n, ALL);
  assert_ok(ac_team_new(3, &team, &e), e);
  return 0;
}

static int end(void **state) {
  (void)state;
  close(fd);
  unlink(path);
  ac_team_free(team);
  free(path);
  free(bytes);
  free(got);
  return 0;
}

static void equal_one_read(void **state) {
  static const uint64_t at[] = {0, 1, 4095, MIB - 1, MIB, 3 * MIB + 7}, lengths[] = {0, 1, 4096, MIB, MIB + 1, 2 * MIB - 1, 2 * MIB, 0};
  (void)state;
  for (int i = 0; i < 6; i++)
    for (int k = 0; k < 8; k++)
      for (int with = 0; with < 2; with++) {
        ac_err e;
        const uint64_t n = k == 7 ? ALL - at[i] : lengths[k];
        uint32_t crc = 1, alone = 1;
        if (at[i] + n > ALL) continue;
        memset(got, 0xA5, ALL);
        assert_ok(aci_read_blocks(fd, path, got, n, at[i], with ? team : NULL, &crc, &e), e);
        assert_memory_equal(got, bytes + at[i], (size_t)n);
        for (uint64_t j = n; j < n + 64 && j < ALL; j++) assert_int_equal(got[j], 0xA5);
        assert_int_equal(crc, aci_crc32c(0, bytes + at[i], (size_t)n));
        assert_ok(aci_read_blocks(fd, path, NULL, n, at[i], with ? team : NULL, &alone, &e), e);
        assert_int_equal(alone, crc);
        memset(got, 0xA5, ALL);
        assert_ok(aci_read_blocks(fd, path, got, n, at[i], with ? team : NULL, NULL, &e), e);
        assert_memory_equal(got, bytes + at[i], (size_t)n);
      }
}

static void the_first_error(void **state) {
  (void)state;
  for (int with = 0; with < 2; with++)
    for (int i = 0; i < 20; i++) {
      ac_err e;
      uint32_t crc;
      char *more = realloc(NULL, ALL + 3 * MIB);
      assert_fails(aci_read_blocks(fd, path, more, ALL + 3 * MIB, 0, with ? team : NULL, &crc, &e), IO, "ends at byte 5255225", e);
      free(more);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(equal_one_read), cmocka_unit_test(the_first_error)};
  return cmocka_run_group_tests(tests, begin, end);
}
