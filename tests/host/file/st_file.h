/* What the tests of safetensors share: files built byte by byte in the test's folder, and refusals looked
 * at closely.
 *
 * A header is written as text in which one '^' may mark the byte that a message has to name. */
#ifndef ACCEL_TESTS_HOST_FILE_ST_FILE_H
#define ACCEL_TESTS_HOST_FILE_ST_FILE_H
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel/file.h"

/* The entry of one tensor in a header. */
#define T(name, dtype, shape, begin, end) \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static inline const char *st_path(void) {
  static char path[4096];
  if (path[0] == 0) {
    char *p = ac_test_tmp_path("x.safetensors");
    snprintf(path, sizeof path, "%s", p);
    free(p);
  }
  return path;
}

/* Length, header, and n_data bytes 0, 1, 2, ... */
static inline void st_put_n(const char *header, size_t n, size_t n_data) {
  unsigned char *bytes = malloc(8 + n + n_data);
  assert_non_null(bytes);
  for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)n >> (8 * i));
  memcpy(bytes + 8, header, n);
  for (size_t i = 0; i < n_data; i++) bytes[8 + n + i] = (unsigned char)i;
  ac_test_write(st_path(), bytes, 8 + n + n_data);
  free(bytes);
}
static inline void st_put(const char *header, size_t n_data) { st_put_n(header, strlen(header), n_data); }

static inline ac_safetensors *st_good(const char *header, size_t n_data) {
  ac_err e;
  ac_safetensors *f = NULL;
  st_put(header, n_data);
  if (ac_safetensors_open(st_path(), &f, &e) != AC_OK) fail_msg("refused: %s: %s", header, e.msg);
  return f;
}

/* What stands in st_path() is refused by this rule at this byte; the message has `says`, and nothing is
 * left behind. */
static inline void st_refused_file(const char *rule, uint64_t at, const char *says, const char *header) {
  ac_err e;
  char expected[80];
  ac_safetensors *f = (ac_safetensors *)&e;
  ac_status st = ac_safetensors_open(st_path(), &f, &e);
  if (st != AC_PARSE)
    fail_msg("%s: gives %s (%s), expected a breach of %s", header, ac_status_name(st),
             st == AC_OK ? "" : e.msg, rule);
  assert_null(f);
  assert_int_equal(ac_tensor_live(), 0);
  snprintf(expected, sizeof expected,
           "x.safetensors: not a valid safetensors file: rule %s at byte %llu: ", rule,
           (unsigned long long)at);
  if (strstr(e.msg, expected) == NULL || strstr(e.msg, says) == NULL)
    fail_msg("%s: says \"%s\", not \"%s\" and \"%s\"", header, e.msg, expected, says);
}

static inline void st_refused(const char *marked, size_t n_data, const char *rule, const char *says) {
  size_t n = strlen(marked);
  const char *mark = strchr(marked, '^');
  assert_non_null(mark);
  char *header = malloc(n + 1);
  size_t at = (size_t)(mark - marked);
  memcpy(header, marked, at);
  strcpy(header + at, mark + 1);
  st_put(header, n_data);
  st_refused_file(rule, 8 + at, says, marked);
  free(header);
}

#endif
