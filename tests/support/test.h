/* support/test.h - what C tests share: cmocka with the headers it wants before it, statuses that explain
 * themselves, paths of the run, and numbers that are the same in every run.
 *
 * Include it first, and link nothing: tests/CMakeLists.txt does. Every test_*.c of tests/ gets it. */
#ifndef ACCEL_TESTS_SUPPORT_TEST_H
#define ACCEL_TESTS_SUPPORT_TEST_H
#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "accel/base.h"

/* The call succeeds; otherwise its story is printed and the test fails. `e` is the ac_err the call fills. */
#define assert_ok(expr, e) ac_test_status((expr), AC_OK, &(e), #expr, __FILE__, __LINE__)
/* The call fails with AC_<code>, and its message contains `part` (a string of what a person needs to see). */
#define assert_fails(expr, code, part, e)                               \
  do {                                                                  \
    ac_test_status((expr), AC_##code, &(e), #expr, __FILE__, __LINE__); \
    ac_test_contains((e).msg, (part), __FILE__, __LINE__);              \
  } while (0)

void ac_test_status(ac_status got, ac_status want, const ac_err *e, const char *expr, const char *file,
                    int line);
void ac_test_contains(const char *text, const char *part, const char *file, int line);

/* |a - b| <= atol + rtol |b|, NaN equal to NaN; the failing pair and its index are printed. */
void ac_test_close(const double *a, const double *b, int64_t n, double rtol, double atol, const char *file,
                   int line);
#define assert_close(a, b, n, rtol, atol) ac_test_close((a), (b), (n), (rtol), (atol), __FILE__, __LINE__)

/* Paths. The text is malloc'd: free it. `name` is relative. */
char *ac_test_source_path(const char *name); /* in the source tree */
char *ac_test_tmp_path(const char *name);    /* in this test's own folder */
/* Whole file; NULL fails the test. A zero byte follows the contents. The caller frees. */
char *ac_test_read(const char *path, size_t *n_bytes);
void ac_test_write(const char *path, const void *bytes, size_t n_bytes);

/* xorshift64*: independent of the generators under test. Seed with any number but 0. */
uint64_t ac_test_random(uint64_t *state);
double ac_test_uniform(uint64_t *state); /* [0, 1) */

/* Of a long table of cases, one of so many is run: each, or one of n under a sanitizer, where processes take ten times as long. Take
 * an n that shares no factor with the lengths of what the table goes through. */
int ac_test_every(int n);
/* Of cases that differ only in size: whether this one is taken. Of n consecutive calls exactly one is, chosen by ACCEL_TEST_SEED, which is
 * printed; in a full run (ACCEL_TEST_FULL=1, the tier matrix) every one. Ranks that make the same calls choose the same cases. A file
 * that uses it says "tier: sampled" in its head comment. */
bool ac_test_sampled(int n);

/* Bounds on time hold where the cores are free. What was right but late is tried again, up to ten times: what the
 * code itself makes late is so each time. In the table of tests AC_TEST_TIMED(f) takes the place of
 * cmocka_unit_test(f) for a test that calls ac_test_late. */
void ac_test_late(const char *what, double seconds);
/* Whether ac_test_late was called since the last time this was; fails when that is so ten times in a row. */
bool ac_test_was_late(void);
typedef struct ac_test_timed {
  void (*run)(void **state);
} ac_test_timed;
void ac_test_run_timed(void **state);
#define AC_TEST_TIMED(f) {#f, ac_test_run_timed, NULL, NULL, &(ac_test_timed){f}}

#endif
