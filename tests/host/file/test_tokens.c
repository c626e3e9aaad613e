/* Token files: every width against values computed here, bounds that do not overflow, and files that are
 * no token files or change while they are open. */
#include "support/test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "accel/file.h"

static char *path;
static int set_path(void **state) {
  path = ac_test_tmp_path("tokens.bin");
  return 0;
}
static int clear_path(void **state) {
  unlink(path);
  free(path);
  return 0;
}

/* Token i of a file of n: covers the range of the dtype, negative numbers and the top bit included. */
static int64_t token(ac_dtype dt, int64_t i) {
  uint64_t v = (uint64_t)(i + 1) * 0x9E3779B97F4A7C15u;
  switch (dt) {
    case AC_U8: return (uint8_t)(v >> 56);
    case AC_U16: return (uint16_t)(v >> 48);
    case AC_I32: return (int32_t)(v >> 32);
    case AC_U32: return (uint32_t)(v >> 32);
    default: return (int64_t)v;
  }
}

static void put(ac_dtype dt, int64_t n, size_t header) {
  size_t es = ac_dtype_bytes(dt);
  unsigned char *b = malloc(header + (size_t)n * es + 1);
  assert_non_null(b);
  memset(b, 0xEE, header);
  for (int64_t i = 0; i < n; i++)
    for (size_t k = 0; k < es; k++)
      b[header + (size_t)i * es + k] = (unsigned char)((uint64_t)token(dt, i) >> (8 * k));
  unlink(path); /* an aborted run may have left a pipe */
  ac_test_write(path, b, header + (size_t)n * es);
  free(b);
}

static void reads_every_width(void **state) {
  static const ac_dtype all[] = {AC_U8, AC_U16, AC_I32, AC_U32, AC_I64};
  static const int64_t lens[] = {0, 1, 2, 3, 7, 64, 1000};
  ac_err e;
  ac_tokens *t;
  for (size_t d = 0; d < 5; d++)
    for (size_t header = 0; header < 1100; header += 1024 / 2 + 5) { /* odd headers too: nothing is aligned */
      put(all[d], 1000, header);
      assert_ok(ac_tokens_open(path, all[d], header, &t, &e), e);
      assert_int_equal(ac_tokens_length(t), 1000);
      for (size_t l = 0; l < sizeof lens / sizeof *lens; l++) {
        int64_t len = lens[l], offset[] = {0, (1000 - len) / 2, 1000 - len, 0};
        int64_t *out =
            malloc((size_t)(4 * len + 1) * sizeof *out); /* exactly: a sanitizer sees any step beyond */
        assert_non_null(out);
        out[4 * len] = 42;
        assert_ok(ac_tokens_read(t, 4, offset, len, out, &e), e);
        for (int r = 0; r < 4; r++)
          for (int64_t j = 0; j < len; j++) assert_true(out[r * len + j] == token(all[d], offset[r] + j));
        assert_int_equal(out[4 * len], 42);
        free(out);
      }
      assert_ok(ac_tokens_read(t, 0, NULL, 10, NULL, &e), e);
      ac_tokens_close(t);
    }
  ac_tokens_close(NULL);
}

static void empty_file(void **state) {
  ac_err e;
  ac_tokens *t;
  int64_t none;
  put(AC_U16, 0, 6);
  assert_ok(ac_tokens_open(path, AC_U16, 6, &t, &e), e);
  assert_int_equal(ac_tokens_length(t), 0);
  assert_ok(ac_tokens_read(t, 1, (int64_t[]){0}, 0, &none, &e), e);
  assert_fails(ac_tokens_read(t, 1, (int64_t[]){0}, 1, &none, &e), INDEX,
               "row 0 asks for 1 tokens from token 0 on; there are 0", e);
  ac_tokens_close(t);
}

static void bounds(void **state) {
  ac_err e;
  ac_tokens *t;
  int64_t out[8] = {7, 7, 7, 7, 7, 7, 7, 7};
  put(AC_U16, 100, 0);
  assert_ok(ac_tokens_open(path, AC_U16, 0, &t, &e), e);
  static const struct {
    int64_t offset[2], len;
    const char *says;
  } bad[] = {{{0, 97}, 4, "tokens.bin: row 1 asks for 4 tokens from token 97 on; there are 100"},
             {{-1, 0}, 4, "row 0 asks for 4 tokens from token -1 on"},
             {{100, 0}, 1, "row 0"},
             {{0, INT64_MAX}, 4, "row 1 asks for 4 tokens from token 9223372036854775807 on"},
             {{0, INT64_MIN}, 4, "row 1"},
             {{0, 1}, INT64_MAX, "row 0 asks for 9223372036854775807 tokens from token 0 on"},
             {{0, 0}, -1, "rows of -1 tokens"},
             {{0, 0}, INT64_MIN, "rows of -9223372036854775808 tokens"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_fails(ac_tokens_read(t, 2, bad[i].offset, bad[i].len, out, &e), INDEX, bad[i].says, e);
  for (int i = 0; i < 8; i++) assert_int_equal(out[i], 7); /* bounds come before the first byte */
  assert_ok(ac_tokens_read(t, 2, (int64_t[]){96, 0}, 4, out, &e), e);
  ac_tokens_close(t);
}

static void refusals(void **state) {
  ac_err e;
  ac_tokens *t = (ac_tokens *)&e;
  put(AC_U8, 7, 0);
  assert_fails(ac_tokens_open(path, AC_U16, 0, &t, &e), PARSE,
               "7 bytes are not a whole number of u16 tokens after a header of 0", e);
  assert_null(t);
  assert_fails(ac_tokens_open(path, AC_I64, 0, &t, &e), PARSE, "i64", e);
  assert_fails(ac_tokens_open(path, AC_U8, 8, &t, &e), PARSE, "header of 8", e);
  assert_fails(ac_tokens_open(path, AC_U8, UINT64_MAX, &t, &e), PARSE, "header of 18446744073709551615", e);
  assert_ok(ac_tokens_open(path, AC_U16, 3, &t, &e), e);
  assert_int_equal(ac_tokens_length(t), 2);
  ac_tokens_close(t);
  assert_fails(ac_tokens_open(path, AC_F32, 0, &t, &e), DTYPE, "not f32", e);
  assert_fails(ac_tokens_open(path, AC_BOOL, 0, &t, &e), DTYPE, "not bool", e);
  unlink(path);
  assert_fails(ac_tokens_open(path, AC_U16, 0, &t, &e), NOT_FOUND, "tokens.bin: cannot open: No such file",
               e);
  char *folder = ac_test_tmp_path(".");
  assert_fails(ac_tokens_open(folder, AC_U16, 0, &t, &e), IO, "is a folder", e);
  free(folder);
  assert_int_equal(mkfifo(path, 0600), 0);
  assert_fails(ac_tokens_open(path, AC_U16, 0, &t, &e), IO, "is a pipe, not a regular file",
               e); /* and does not wait for a writer */
  unlink(path);
}

static void file_cut_while_open(void **state) {
  ac_err e;
  ac_tokens *t;
  int64_t out[4];
  put(AC_U32, 8, 0);
  assert_ok(ac_tokens_open(path, AC_U32, 0, &t, &e), e);
  assert_int_equal(truncate(path, 30), 0);
  assert_ok(ac_tokens_read(t, 1, (int64_t[]){0}, 4, out, &e), e);
  assert_fails(ac_tokens_read(t, 1, (int64_t[]){4}, 4, out, &e), IO, "ends at byte 30, 2 bytes too early", e);
  assert_int_equal(truncate(path, 0), 0);
  assert_fails(ac_tokens_read(t, 1, (int64_t[]){0}, 1, out, &e), IO, "too early", e);
  ac_tokens_close(t);
}

/* A file far larger than memory: offsets beyond 4 GiB, in a hole. */
static void large_offsets(void **state) {
  ac_err e;
  ac_tokens *t;
  int64_t out[2] = {1, 1}, n = (int64_t)3 << 32;
  ac_test_write(path, "", 0);
  if (truncate(path, n * 2) != 0) skip();
  assert_ok(ac_tokens_open(path, AC_U16, 0, &t, &e), e);
  assert_int_equal(ac_tokens_length(t), n);
  assert_ok(ac_tokens_read(t, 1, (int64_t[]){n - 2}, 2, out, &e), e);
  assert_int_equal(out[0] | out[1], 0);
  assert_fails(ac_tokens_read(t, 1, (int64_t[]){n - 1}, 2, out, &e), INDEX, "there are 12884901888", e);
  ac_tokens_close(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_every_width),
      cmocka_unit_test(empty_file),
      cmocka_unit_test(bounds),
      cmocka_unit_test(refusals),
      cmocka_unit_test(file_cut_while_open),
      cmocka_unit_test(large_offsets),
  };
  return cmocka_run_group_tests(tests, set_path, clear_path);
}
