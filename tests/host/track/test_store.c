/* The run store: values, buckets and curves against closed forms, a run that goes on, files that are no stores, a store that another
 * process holds, 1,000,000 scalars of 10 processes, kill -9.  tier: every change, memory */
#include "support/test.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "accel/store.h"

static char *store_path(const char *name) {
  char *path = ac_test_tmp_path(name), side[4200];
  unlink(path);
  snprintf(side, sizeof side, "%s-wal", path);
  unlink(side);
  snprintf(side, sizeof side, "%s-shm", path);
  unlink(side);
  return path;
}

static ac_track *open_run(const char *path, const char *uid, bool resume) {
  const ac_run_info info = {.uid = uid, .project = "p", .name = uid, .environment = "{}", .resume = resume};
  ac_track *t = NULL;
  ac_err e;
  assert_ok(ac_track_open_run(path, &info, &t, &e), e);
  return t;
}

/* The one number that a statement gives. */
static double number(ac_store *s, const char *sql) {
  ac_cursor *c = NULL;
  bool more = false;
  ac_err e;
  assert_ok(ac_cursor_open(s, sql, NULL, 0, &c, &e), e);
  assert_ok(ac_cursor_next(c, &more, &e), e);
  assert_true(more);
  const ac_store_value v = ac_cursor_value(c, 0);
  ac_cursor_free(c);
  return v.kind == AC_VALUE_INT ? (double)v.i : v.kind == AC_VALUE_FLOAT ? v.f : NAN;
}

static void check_whole(ac_store *s) {
  ac_cursor *c = NULL;
  bool more = false;
  ac_err e;
  assert_ok(ac_cursor_open(s, "PRAGMA integrity_check", NULL, 0, &c, &e), e);
  assert_ok(ac_cursor_next(c, &more, &e), e);
  assert_string_equal(ac_cursor_value(c, 0).p, "ok");
  ac_cursor_free(c);
  /* every level that has rows has every point of its series, once */
  assert_int_equal(number(s, "SELECT count(*) FROM (SELECT sum(b.n) AS has, s.n AS due FROM buckets b JOIN series s ON s.id=b.series"
                             " GROUP BY b.series, b.level HAVING has<>due)"), 0);
  assert_int_equal(number(s, "SELECT count(*) FROM (SELECT s.n, (SELECT count(*) FROM points p WHERE p.series=s.id) AS has FROM series s"
                             " WHERE s.n<>has)"), 0);
}

static ac_store *reopen(const char *path) {
  ac_store *s = NULL;
  ac_err e;
  assert_ok(ac_store_open(path, false, &s, &e), e);
  return s;
}

static void values_come_back(void **state) {
  (void)state;
  char *path = store_path("values.db");
  ac_err e;
  ac_track *t = open_run(path, "a", false);
  const double odd[] = {1.5, NAN, INFINITY, -INFINITY, -2.25};
  for (int i = 0; i < 5; i++) assert_ok(ac_track_scalar(t, "odd", i * 10, odd[i], 100 + i, &e), e);
  assert_ok(ac_run_record(t, "text", "note", 7, NULL, "hello", 5, 0, &e), e);
  assert_ok(ac_run_record(t, "image", "pic", 8, "{\"w\":1}", "\0\1\2", 3, 0, &e), e);
  assert_ok(ac_run_record(t, "config", "lr", 0, NULL, "0.5", 3, 0, &e), e);
  assert_ok(ac_run_record(t, "config", "lr", 0, NULL, "0.25", 4, 0, &e), e);
  assert_ok(ac_run_record(t, "end", "failed", 3, NULL, "why", 3, 0, &e), e);
  assert_ok(ac_track_close(t, &e), e);
  ac_store *s = reopen(path);
  assert_int_equal(number(s, "SELECT n FROM series WHERE tag='odd'"), 5);
  assert_int_equal(number(s, "SELECT finite FROM series"), 2);
  assert_true(number(s, "SELECT min FROM series") == -2.25 && number(s, "SELECT max FROM series") == 1.5);
  assert_true(number(s, "SELECT last FROM series") == -2.25 && number(s, "SELECT last_step FROM series") == 40);
  assert_true(isnan(number(s, "SELECT value FROM points WHERE seq=1")));
  assert_true(number(s, "SELECT value FROM points WHERE seq=2") == INFINITY);
  assert_true(number(s, "SELECT wall FROM points WHERE seq=3") == 103);
  assert_int_equal(number(s, "SELECT count(*) FROM records WHERE kind='text' AND tag='note' AND step=7 AND data='hello'"), 1);
  assert_int_equal(number(s, "SELECT count(*) FROM records WHERE kind='image' AND data=x'000102' AND meta='{\"w\":1}'"), 1);
  assert_true(number(s, "SELECT count(*) FROM config") == 1 && number(s, "SELECT value+0.0 FROM config") == 0.25);
  assert_int_equal(number(s, "SELECT count(*) FROM runs WHERE status='failed' AND exit_code=3 AND message='why' AND ended>0"), 1);
  ac_cursor *c = NULL;
  assert_fails(ac_cursor_open(s, "SELECT ?", NULL, 0, &c, &e), INVALID, "1 '?'", e);
  assert_fails(ac_cursor_open(s, "SELEKT 1", NULL, 0, &c, &e), INVALID, "SELEKT", e);
  assert_ok(ac_cursor_open(s, "DELETE FROM runs", NULL, 0, &c, &e), e);
  bool more;
  assert_int_not_equal(ac_cursor_next(c, &more, &e), AC_OK); /* it was opened to be read */
  ac_cursor_free(c);
  ac_store_close(s);
  free(path);
}

/* value(step) = step; of a curve of buckets every bucket's mean is its middle and its extremes are its ends. */
static void check_line(ac_store *s, double from, double to, int64_t most, int64_t all) {
  ac_curve_point *p = NULL;
  int64_t n = 0;
  ac_err e;
  assert_ok(ac_store_curve(s, 1, AC_CURVE_STEP, from, to, most, &p, &n, &e), e);
  assert_true(n > 0 && n <= most);
  for (int64_t i = 0; i < n; i++) {
    assert_true(fabs(p[i].mean - (p[i].min + p[i].max) / 2) < 1e-6 && p[i].min <= p[i].max);
    assert_true(fabs(p[i].x - p[i].mean) < 5000); /* the ends of groups may be shorter than the others */
    if (i > 0) assert_true(p[i].min == p[i - 1].max + 1);
  }
  const double first = from > 1 ? from - 1 : 1, last = to < (double)all ? to + 1 : (double)all;
  assert_true(p[0].min <= first && p[n - 1].max >= last);
  free(p);
}

static void curves(void **state) {
  (void)state;
  enum { N = 70000 };
  char *path = store_path("curves.db");
  ac_err e;
  int64_t at = 0;
  /* by several writers, so that buckets that are not full are taken up at every place */
  const int64_t parts[] = {3, 5, 8, 1, 46, 1, 448, 511, 4000, 10000, 32768, N};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    ac_track *t = open_run(path, "a", true);
    for (int64_t k = 0; k < parts[i] && at < N; k++) {
      at++;
      assert_ok(ac_track_scalar(t, "line", at, (double)at, 1000 + 0.5 * (double)at, &e), e);
    }
    assert_ok(ac_track_close(t, &e), e);
  }
  ac_store *s = reopen(path);
  check_whole(s);
  assert_int_equal(number(s, "SELECT n FROM series"), N);
  assert_int_equal(number(s, "SELECT max(level) FROM buckets"), AC_STORE_LEVELS);
  assert_int_equal(number(s, "SELECT count(*) FROM buckets WHERE sum<>n*(step0+step1)/2 OR min<>step0 OR max<>step1"), 0);
  const int64_t most[] = {2, 7, 100, 600, 5000, 200000};
  for (int i = 0; i < 6; i++) {
    check_line(s, -INFINITY, INFINITY, most[i], N);
    check_line(s, 20000, 20100, most[i] < 110 ? 110 : most[i], N);
    check_line(s, 1, 35000, most[i], N);
  }
  ac_curve_point *p = NULL;
  int64_t n = 0;
  assert_ok(ac_store_curve(s, 1, AC_CURVE_WALL, 1000 + 0.5 * 30000, 1000 + 0.5 * 30010, 100, &p, &n, &e), e);
  assert_true(n == 11 && p[0].mean == 30000 && p[10].mean == 30010 && p[0].x == 16000);
  free(p);
  assert_ok(ac_store_curve(s, 1, AC_CURVE_STEP, 5.25, 5.75, 100, &p, &n, &e), e); /* between two points: both */
  assert_true(n == 2 && p[0].mean == 5 && p[1].mean == 6);
  free(p);
  assert_ok(ac_store_curve(s, 99, AC_CURVE_STEP, 0, 1, 100, &p, &n, &e), e); /* no such series */
  assert_int_equal(n, 0);
  free(p);
  ac_store_close(s);
  free(path);
}

static void refusals(void **state) {
  (void)state;
  char *path = store_path("bad.db");
  ac_err e;
  ac_store *s = NULL;
  ac_track *t = NULL;
  ac_run_info info = {.uid = "a", .project = "p", .name = "n", .environment = "{}"};
  assert_fails(ac_store_open(path, false, &s, &e), NOT_FOUND, "no run store", e);
  ac_test_write(path, "this is text, and long enough to be taken for the head of a database, which has a hundred bytes and more....", 105);
  assert_fails(ac_store_open(path, false, &s, &e), PARSE, "no SQLite file", e);
  assert_fails(ac_track_open_run(path, &info, &t, &e), PARSE, "no SQLite file", e);
  free(path);
  path = store_path("good.db");
  info.uid = "a/b";
  assert_fails(ac_track_open_run(path, &info, &t, &e), INVALID, "uid", e);
  ac_track *first = open_run(path, "a", false);
  info.uid = "a";
  assert_fails(ac_track_open_run(path, &info, &t, &e), STATE, "already", e);
  assert_ok(ac_track_close(first, &e), e);
  assert_ok(ac_store_open(path, true, &s, &e), e);
  ac_cursor *c = NULL;
  bool more;
  assert_ok(ac_cursor_open(s, "PRAGMA user_version=9", NULL, 0, &c, &e), e);
  assert_ok(ac_cursor_next(c, &more, &e), e);
  ac_cursor_free(c);
  ac_store_close(s);
  assert_fails(ac_store_open(path, false, &s, &e), UNSUPPORTED, "newer accel", e);
  assert_fails(ac_track_open_run(path, &info, &t, &e), UNSUPPORTED, "newer accel", e);
  free(path);
}

/* A disk that is full: nothing is lost and nothing doubled once there is room again. */
static void full_disk(void **state) {
  (void)state;
  char *path = store_path("full.db");
  ac_err e;
  const struct rlimit before = {RLIM_INFINITY, RLIM_INFINITY};
  signal(SIGXFSZ, SIG_IGN);
  ac_track *t = open_run(path, "a", false);
  for (int i = 1; i <= 1000; i++) assert_ok(ac_track_scalar(t, "x", i, i, 0, &e), e);
  assert_ok(ac_track_flush(t, &e), e);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){64 << 10, RLIM_INFINITY}), 0);
  for (int i = 1001; i <= 30000; i++) assert_ok(ac_track_scalar(t, "x", i, i, 0, &e), e);
  assert_int_not_equal(ac_track_flush(t, &e), AC_OK);
  assert_true(ac_track_fault(t, &e));
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  for (int i = 30001; i <= 31000; i++) assert_ok(ac_track_scalar(t, "x", i, i, 0, &e), e);
  assert_ok(ac_track_close(t, &e), e);
  ac_store *s = reopen(path);
  check_whole(s);
  assert_int_equal(number(s, "SELECT count(*) FROM points WHERE value=step"), 31000);
  assert_int_equal(number(s, "SELECT count(DISTINCT step) FROM points"), 31000);
  ac_store_close(s);
  free(path);
}

/* ---- several processes ---- */

enum { PROCESSES = 10, TICKS = 4096, TICK_MS = 5 };

/* What a child has logged, by time: a page that survives it. */
typedef struct page {
  _Atomic int64_t logged[TICKS];
  _Atomic int started;
} page;

static double seconds(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static pid_t start(const char *path, int i, int64_t n, page *shared, double since) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  alarm(300); /* nobody is left behind by a test that fails */
  char uid[16];
  ac_err e;
  ac_track *t = NULL;
  snprintf(uid, sizeof uid, "run-%d", i);
  const ac_run_info info = {.uid = uid, .project = "p", .name = uid, .environment = "{}"};
  if (ac_track_open_run(path, &info, &t, &e) != AC_OK) {
    fprintf(stderr, "process %d: %s\n", i, e.msg);
    _exit(3);
  }
  if (shared != NULL) atomic_store(&shared->started, 1);
  for (int64_t k = 1; k <= n; k++) {
    if (ac_track_scalar(t, "x", k, (double)(k * (i + 1)), 0, &e) != AC_OK) _exit(4);
    if (shared == NULL || k % 10 != 0) continue;
    const int tick = (int)((seconds() - since) * 1000 / TICK_MS);
    if (tick < TICKS) atomic_store(&shared->logged[tick], k);
    nanosleep(&(struct timespec){0, 5000000}, NULL);
  }
  const bool lost = ac_track_dropped(t) > 0;
  if (ac_track_close(t, &e) != AC_OK || lost) {
    fprintf(stderr, "process %d: %s\n", i, lost ? "records dropped" : e.msg);
    _exit(5);
  }
  _exit(0);
}

static void million(void **state) {
  (void)state;
  enum { EACH = 100000 };
  char *path = store_path("million.db");
  pid_t pid[PROCESSES];
  const int n = ac_test_every(5) == 1 ? EACH : EACH / 10;
  for (int i = 0; i < PROCESSES; i++) pid[i] = start(path, i, n, NULL, 0);
  for (int i = 0; i < PROCESSES; i++) {
    int status;
    assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  ac_store *s = reopen(path);
  check_whole(s);
  assert_int_equal(number(s, "SELECT count(*) FROM points"), (double)PROCESSES * n);
  assert_int_equal(number(s, "SELECT count(*) FROM runs r JOIN series s ON s.run=r.id JOIN points p ON p.series=s.id"
                             " WHERE p.value<>p.step*(substr(r.uid,5)+1) OR p.seq<>p.step-1"), 0);
  ac_store_close(s);
  free(path);
}

static void killed(void **state) {
  (void)state;
  char *path = store_path("killed.db"), sql[160];
  uint64_t seed = 88172645463325252ull ^ (uint64_t)getpid();
  page *shared = mmap(NULL, PROCESSES * sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(shared != MAP_FAILED);
  pid_t pid[PROCESSES];
  double at[PROCESSES];
  const double since = seconds();
  for (int i = 0; i < PROCESSES; i++) pid[i] = start(path, i, INT64_MAX, &shared[i], since);
  for (int i = 0; i < PROCESSES; i++)
    while (!atomic_load(&shared[i].started)) {
      assert_int_equal(waitpid(pid[i], NULL, WNOHANG), 0); /* it could not begin: its last line says why */
      nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
  for (int i = 0; i < PROCESSES; i++) {
    nanosleep(&(struct timespec){0, (long)(100000000 + 300000000 * ac_test_uniform(&seed))}, NULL);
    at[i] = seconds() - since;
    kill(pid[i], SIGKILL);
    waitpid(pid[i], NULL, 0);
  }
  ac_store *s = reopen(path);
  check_whole(s);
  for (int i = 0; i < PROCESSES; i++) {
    snprintf(sql, sizeof sql, "SELECT coalesce(max(p.step),0) FROM points p JOIN series s ON s.id=p.series JOIN runs r ON r.id=s.run"
                              " WHERE r.uid='run-%d'", i);
    const int64_t kept = (int64_t)number(s, sql);
    int64_t due = 0; /* logged a second before it was killed */
    for (int k = 0; k < TICKS && k * TICK_MS < (at[i] - 1) * 1000; k++) {
      const int64_t n = atomic_load(&shared[i].logged[k]);
      if (n > due) due = n;
    }
    if (kept < due) ac_test_late("a record that was logged a second before the end", (double)(due - kept) / 10000);
    snprintf(sql, sizeof sql, "SELECT count(*) FROM points p JOIN series s ON s.id=p.series JOIN runs r ON r.id=s.run"
                              " WHERE r.uid='run-%d' AND p.value=p.step*%d", i, i + 1);
    assert_int_equal(number(s, sql), kept); /* 1, 2, ... without gaps */
  }
  ac_store_close(s);
  /* a killed run goes on */
  ac_err e;
  ac_track *t = open_run(path, "run-0", true);
  assert_ok(ac_track_scalar(t, "x", 1 << 30, 1, 0, &e), e);
  assert_ok(ac_track_close(t, &e), e);
  s = reopen(path);
  check_whole(s);
  ac_store_close(s);
  munmap(shared, PROCESSES * sizeof *shared);
  free(path);
}

int main(void) {
  ac_store *s = NULL;
  ac_err e;
  if (ac_store_open("/nonexistent/runs.db", false, &s, &e) == AC_UNSUPPORTED) {
    printf("skipped: %s\n", e.msg);
    return 77;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_come_back), cmocka_unit_test(curves),  cmocka_unit_test(refusals),
      cmocka_unit_test(full_disk),        cmocka_unit_test(million), AC_TEST_TIMED(killed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
