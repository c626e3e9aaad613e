/* Processes that write checkpoints, 1 to 3 parts of each, are killed at random moments, all of them or one. What the folder then holds
 * is whole: the last acknowledged checkpoint or a later one, with its values. Parts that live on are told within seconds, and the next
 * save takes away what the dead ones left.
 *
 * tier: sampled, memory (10 kills in a run of every change, 300 in all) */
#include "host/ckpt/ckpt_case.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

enum { MOST_PARTS = 3, KILLS = 300, GAVE_UP = 3 };

typedef struct writers {
  int parts;
  int64_t rows;
  char *parent;
  bool asynchronous;
  int folder[MOST_PARTS][2]; /* part 0 tells the others by these */
  int ack[2];
  pid_t pid[MOST_PARTS];
} writers;

typedef struct telling {
  const writers *w;
} telling;

static void tell(void *user, const ac_ckpt_save *s) {
  const writers *w = ((telling *)user)->w;
  char path[512] = {0};
  snprintf(path, sizeof path, "%s", ac_ckpt_folder(s));
  for (int r = 1; r < w->parts; r++)
    if (write(w->folder[r][1], path, sizeof path) != (ssize_t)sizeof path) _exit(GAVE_UP);
}

/* Never returns: saves until it is killed, or until a save fails. */
static void write_on(const writers *w, int part) {
  ac_device *d;
  ac_err e;
  ac_ckpt_arena *arena = NULL;
  telling t = {w};
  signal(SIGPIPE, SIG_IGN);
  for (int r = 1; r < w->parts; r++) {
    if (r != part) close(w->folder[r][0]);
    if (part != 0) close(w->folder[r][1]);
  }
  if (ac_device_open(ac_device_cpu_vtable(), 0, 1 << 28, NULL, &d, &e) != AC_OK) _exit(9);
  if (w->asynchronous && ac_ckpt_arena_new(&arena, &e) != AC_OK) _exit(9);
  for (int step = 1;; step++) {
    const case_size z = {w->rows, part, w->parts};
    char path[512];
    if (part > 0 && read(w->folder[part][0], path, sizeof path) != (ssize_t)sizeof path) _exit(GAVE_UP);
    const ac_status st = case_save(d, w->parent, step, &z, part > 0 ? path : NULL, arena, part == 0 ? tell : NULL, &t, &e);
    if (st != AC_OK) {
      if (strstr(e.msg, "step-") == NULL) fprintf(stderr, "part %d: %s\n", part, e.msg);
      _exit(strstr(e.msg, "step-") != NULL ? GAVE_UP : 8);
    }
    if (part == 0 && write(w->ack[1], &step, sizeof step) != (ssize_t)sizeof step) _exit(7);
  }
}

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Whether this part had begun to take part in the save that is under way. */
static bool had_joined(const writers *w, int part) {
  ac_ckpt_list l;
  ac_err e;
  bool yes = false;
  assert_ok(ac_ckpt_scan(w->parent, &l, &e), e);
  for (int i = 0; i < l.n; i++)
    yes = yes || (l.entry[i].status == AC_CKPT_UNFINISHED && aci_owner_look(l.entry[i].path, part) != ACI_OWNER_NONE);
  ac_ckpt_list_free(&l);
  return yes;
}

/* Waits for all of them; the survivors of a kill end by themselves. But for one that waits for a part which died before it began: of that
 * only a launcher knows, whose place is taken here. */
static void wait_for_all(writers *w, int victim, const char *what) {
  const int64_t until = now_ms() + 15000;
  for (int r = 0; r < w->parts; r++) {
    int status = 0;
    pid_t got;
    while ((got = waitpid(w->pid[r], &status, WNOHANG)) == 0) {
      if (now_ms() > until) {
        const bool joined = had_joined(w, victim);
        for (int k = r; k < w->parts; k++) kill(w->pid[k], SIGKILL);
        if (joined) fail_msg("%s: part %d does not end", what, r);
      }
      usleep(1000);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) != GAVE_UP) fail_msg("%s: part %d ends with %d", what, r, WEXITSTATUS(status));
  }
}

static void check_folder(ac_device *d, const writers *w, int acked, const char *what) {
  ac_ckpt_list l;
  ac_err e;
  int newest = 0;
  assert_ok(ac_ckpt_scan(w->parent, &l, &e), e);
  for (int i = 0; i < l.n; i++) {
    const ac_ckpt_entry *x = &l.entry[i];
    if (x->status == AC_CKPT_UNFINISHED) continue;
    if (x->status != AC_CKPT_OK) fail_msg("%s: %s is %s: %s", what, x->name, ac_ckpt_status_name(x->status), x->reason);
    newest = (int)x->number;
  }
  if (newest < acked) fail_msg("%s: %d was acknowledged, %d is the newest", what, acked, newest);
  for (int i = 0; i < l.n; i++)
    if (l.entry[i].status == AC_CKPT_OK && l.entry[i].number >= newest - 1 &&
        case_load(d, l.entry[i].path, (int)l.entry[i].number, w->rows, &e) != AC_OK)
      fail_msg("%s: %s", what, e.msg);
  ac_ckpt_list_free(&l);
}

/* What the dead left goes with the next save. */
static void check_swept(ac_device *d, const writers *w, const char *what) {
  const case_size z = {w->rows, 0, 1};
  ac_ckpt_list l;
  ac_err e;
  assert_ok(case_save(d, w->parent, 1000000, &z, NULL, NULL, NULL, NULL, &e), e);
  assert_ok(ac_ckpt_scan(w->parent, &l, &e), e);
  for (int i = 0; i < l.n; i++)
    if (l.entry[i].status != AC_CKPT_OK) {
      bool young = aci_owner_look(l.entry[i].path, 0) == ACI_OWNER_NONE; /* what was just made counts as somebody's for a minute */
      for (int r = 0; r < w->parts; r++) young = young || aci_owner_look(l.entry[i].path, r) == ACI_OWNER_LIVE;
      if (!young) fail_msg("%s: %s is left behind", what, l.entry[i].name);
    }
  ac_ckpt_list_free(&l);
}

static void kills(void **state) {
  uint64_t seed = case_seed();
  int run = 0, survivors = 0, in_save = 0;
  for (int i = 0; i < KILLS; i++) {
    writers w = {.parts = 1 + (int)(ac_test_random(&seed) % MOST_PARTS)};
    const bool one = ac_test_random(&seed) % 2 == 0;
    const int victim = (int)(ac_test_random(&seed) % (uint64_t)w.parts);
    const unsigned after_us = (unsigned)(ac_test_random(&seed) % 120000);
    w.rows = ac_test_random(&seed) % 4 == 0 ? 150000 : 60; /* some past the page cache */
    w.asynchronous = ac_test_random(&seed) % 2 == 0;
    if (!ac_test_sampled(KILLS / 10)) continue;
    char what[160];
    snprintf(what, sizeof what, "kill %d: %d parts of %lld rows, %s after %u us", i, w.parts, (long long)w.rows, one ? "one" : "all", after_us);
    w.parent = case_folder("kill");
    assert_int_equal(pipe(w.ack), 0);
    for (int r = 1; r < w.parts; r++) assert_int_equal(pipe(w.folder[r]), 0);
    fflush(NULL);
    for (int r = 0; r < w.parts; r++) {
      if ((w.pid[r] = fork()) == 0) write_on(&w, r);
      assert_true(w.pid[r] > 0);
    }
    for (int r = 1; r < w.parts; r++) {
      close(w.folder[r][0]);
      close(w.folder[r][1]);
    }
    close(w.ack[1]);
    usleep(after_us);
    for (int r = 0; r < w.parts; r++)
      if (!one || r == victim) kill(w.pid[r], SIGKILL);
    wait_for_all(&w, victim, what);
    int acked = 0, step;
    while (read(w.ack[0], &step, sizeof step) == (ssize_t)sizeof step) acked = step;
    close(w.ack[0]);
    ac_err e;
    ac_device *d; /* after the forks, whose children open their own */
    assert_ok(ac_device_open(ac_device_cpu_vtable(), 0, 1 << 28, NULL, &d, &e), e);
    ac_ckpt_list l;
    assert_ok(ac_ckpt_scan(w.parent, &l, &e), e);
    for (int k = 0; k < l.n; k++) in_save += l.entry[k].status == AC_CKPT_UNFINISHED;
    ac_ckpt_list_free(&l);
    check_folder(d, &w, acked, what);
    check_swept(d, &w, what);
    ac_device_release(d);
    survivors += one ? w.parts - 1 : 0;
    run++;
    assert_ok(aci_ckpt_remove_tree(w.parent, &e), e);
    free(w.parent);
  }
  printf("%d kills, %d inside a save, %d parts lived on and were told\n", run, in_save, survivors);
  assert_true(run > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(kills)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
