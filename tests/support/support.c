/* The functions of support/test.h. */
#include "support/test.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ac_test_status(ac_status got, ac_status want, const ac_err *e, const char *expr, const char *file,
                    int line) {
  if (got == want) return;
  print_error("%s\n  gives %s, expected %s\n", expr, ac_status_name(got), ac_status_name(want));
  if (got != AC_OK) print_error("  %s (%s:%d)\n", e->msg, e->file, e->line);
  _fail(file, line);
}

void ac_test_contains(const char *text, const char *part, const char *file, int line) {
  if (strstr(text, part) != NULL) return;
  print_error("message \"%s\"\n  does not contain \"%s\"\n", text, part);
  _fail(file, line);
}

void ac_test_close(const double *a, const double *b, int64_t n, double rtol, double atol, const char *file,
                   int line) {
  for (int64_t i = 0; i < n; i++) {
    if (a[i] == b[i] || (isnan(a[i]) && isnan(b[i]))) continue;
    if (fabs(a[i] - b[i]) <= atol + rtol * fabs(b[i])) continue;
    print_error("element %lld of %lld: %.17g, expected %.17g (error %.3g, allowed %.3g)\n", (long long)i,
                (long long)n, a[i], b[i], fabs(a[i] - b[i]), atol + rtol * fabs(b[i]));
    _fail(file, line);
  }
}

static char *join(const char *variable, const char *name) {
  const char *folder = getenv(variable);
  char *path;
  size_t n;
  if (folder == NULL) {
    print_error("%s is not set: run the test through ctest\n", variable);
    fail();
    return NULL;
  }
  n = strlen(folder) + strlen(name) + 2;
  path = malloc(n);
  assert_non_null(path);
  snprintf(path, n, "%s/%s", folder, name);
  return path;
}

char *ac_test_source_path(const char *name) { return join("ACCEL_TEST_SRC", name); }
char *ac_test_tmp_path(const char *name) { return join("ACCEL_TEST_TMP", name); }

char *ac_test_read(const char *path, size_t *n_bytes) {
  FILE *f = fopen(path, "rb");
  long n = -1;
  char *bytes = NULL;
  if (f != NULL && fseek(f, 0, SEEK_END) == 0) n = ftell(f);
  if (n >= 0) bytes = malloc((size_t)n + 1);
  if (bytes != NULL) {
    rewind(f);
    if (fread(bytes, 1, (size_t)n, f) != (size_t)n) n = -1;
  }
  if (f != NULL) fclose(f);
  if (n < 0 || bytes == NULL) {
    free(bytes);
    print_error("cannot read %s: %s\n", path, strerror(errno));
    fail();
    return NULL;
  }
  bytes[n] = '\0';
  if (n_bytes != NULL) *n_bytes = (size_t)n;
  return bytes;
}

void ac_test_write(const char *path, const void *bytes, size_t n_bytes) {
  FILE *f = fopen(path, "wb");
  size_t done = f == NULL ? 0 : fwrite(bytes, 1, n_bytes, f);
  if (f == NULL || fclose(f) != 0 || done != n_bytes) {
    print_error("cannot write %s: %s\n", path, strerror(errno));
    fail();
  }
}

uint64_t ac_test_random(uint64_t *state) {
  uint64_t x = *state;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  *state = x;
  return x * UINT64_C(2685821657736338717);
}

double ac_test_uniform(uint64_t *state) { return (double)(ac_test_random(state) >> 11) * 0x1p-53; }

static char late[700]; /* what was; "": nothing */

static bool full(void) {
  const char *s = getenv("ACCEL_TEST_FULL");
  return s != NULL && strcmp(s, "1") == 0;
}

int ac_test_every(int n) {
  const char *s = getenv("ACCEL_TEST_SANITIZE");
  return s == NULL || s[0] == 0 || full() ? 1 : n;
}

bool ac_test_sampled(int n) {
  static uint64_t state;
  static int at, of, chosen;
  if (full() || n <= 1) return true;
  if (state == 0) {
    const char *s = getenv("ACCEL_TEST_SEED");
    const unsigned long long seed = s == NULL ? 1 : strtoull(s, NULL, 10);
    state = seed == 0 ? 1 : seed;
    print_message("a sample of the cases: ACCEL_TEST_SEED=%llu takes the same, ACCEL_TEST_FULL=1 all\n", seed);
  }
  if (at == 0 || n != of) { /* the next n calls */
    at = 0;
    of = n;
    chosen = (int)((ac_test_random(&state) >> 33) % (uint64_t)n);
  }
  const bool taken = at == chosen;
  at = (at + 1) % n;
  return taken;
}

void ac_test_late(const char *what, double seconds) { snprintf(late, sizeof late, "after %.2f s: %s", seconds, what); }

bool ac_test_was_late(void) {
  enum { MOST = 10 };
  static int n;
  n = late[0] != 0 ? n + 1 : 0;
  if (n == MOST) {
    n = 0;
    fail_msg("late %d times in a row, now %s", MOST, late);
  }
  if (n > 0) print_message("late, and tried again: %s\n", late);
  late[0] = 0;
  return n > 0;
}

void ac_test_run_timed(void **state) {
  const ac_test_timed *t = *state;
  do {
    late[0] = 0;
    t->run(state);
  } while (ac_test_was_late());
}
