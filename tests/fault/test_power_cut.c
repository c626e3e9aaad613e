/* The power goes while checkpoints are written: a loop-mounted ext4 is shut down at random moments, its journal flushed or not, mounted
 * again, and looked at. Every checkpoint that was acknowledged is whole with its values, and none is damaged. Skipped where this user
 * may not mount; test_power_replay.c is the same without.
 *
 * tier: slow, memory */
#include "host/ckpt/ckpt_case.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

enum { CUTS = 200, MEGABYTES = 96, SHUTDOWN = (int)0x8004587d, FLUSH = 1, NO_FLUSH = 2, SKIP = 77 };

static int run(const char *fmt, const char *a, const char *b) {
  char cmd[1200];
  snprintf(cmd, sizeof cmd, fmt, a, b);
  return system(cmd);
}

static void set_up(const char *image, const char *mount) {
  const int fd = open(image, O_CREAT | O_TRUNC | O_RDWR, 0600);
  if (fd < 0 || ftruncate(fd, (off_t)MEGABYTES << 20) != 0) exit(1);
  close(fd);
  mkdir(mount, 0777);
  run("umount '%s' 2> /dev/null%s", mount, "");
  if (run("mkfs.ext4 -q -F '%s' > /dev/null 2>&1%s", image, "") != 0) {
    printf("skipped: no mkfs.ext4\n");
    exit(SKIP);
  }
  if (run("mount -o loop '%s' '%s' 2> /dev/null", image, mount) != 0) {
    printf("skipped: this user may not mount a file\n");
    exit(SKIP);
  }
}

/* Saves until the disk is gone; every acknowledgement is told. */
static void write_on(const char *parent, int64_t rows, bool asynchronous, bool replace, int ack) {
  ac_device *d;
  ac_err e;
  ac_ckpt_arena *arena = NULL;
  ac_ckpt_list gone;
  if (ac_device_open(ac_device_cpu_vtable(), 0, 1 << 26, NULL, &d, &e) != AC_OK) _exit(9);
  if (asynchronous && ac_ckpt_arena_new(&arena, &e) != AC_OK) _exit(9);
  for (int step = 1;; step++) {
    const case_size z = {rows, 0, 1};
    if (replace && step > 1) { /* the same name again and again: "step-1", whose values are the latest */
      char path[512];
      ac_ckpt_options o = AC_CKPT_OPTIONS_INIT;
      ac_ckpt_save *s;
      o.replace = true;
      case_path(path, sizeof path, parent, 1);
      char text[32];
      snprintf(text, sizeof text, "%d", step);
      if (ac_ckpt_create(path, &o, &s, &e) != AC_OK) _exit(0);
      ac_status st = ac_ckpt_add_bytes(s, "x", text, strlen(text), &e);
      if (st == AC_OK) st = ac_ckpt_start(s, NULL, 0, NULL, NULL, &e);
      if (st == AC_OK) st = ac_ckpt_wait(s, -1, &e);
      if (st != AC_OK) _exit(0);
      ac_ckpt_save_free(s);
    } else if (case_save(d, parent, step, &z, NULL, arena, NULL, NULL, &e) != AC_OK) {
      _exit(0);
    }
    if (write(ack, &step, sizeof step) != (ssize_t)sizeof step) _exit(7);
    if (!replace && ac_ckpt_prune(parent, 3, &gone, &e) == AC_OK) ac_ckpt_list_free(&gone);
  }
}

static void check(ac_device *d, const char *parent, int64_t rows, bool replace, int acked, const char *what) {
  ac_ckpt_list l;
  ac_err e;
  int newest = 0;
  if (ac_ckpt_scan(parent, &l, &e) != AC_OK) {
    if (acked > 0) fail_msg("%s: %d was acknowledged: %s", what, acked, e.msg);
    return;
  }
  for (int i = 0; i < l.n; i++) {
    const ac_ckpt_entry *x = &l.entry[i];
    if (x->status == AC_CKPT_UNFINISHED) continue;
    if (x->status != AC_CKPT_OK) fail_msg("%s: %s is %s: %s", what, x->name, ac_ckpt_status_name(x->status), x->reason);
    if (replace) {
      ac_ckpt *c;
      char *text = NULL;
      size_t n;
      assert_ok(ac_ckpt_open(x->path, &c, &e), e);
      if (ac_ckpt_n_files(c) == 1) {
        assert_ok(ac_ckpt_read_bytes(c, "x", &text, &n, &e), e);
        newest = atoi(text);
      } else {
        newest = 1;
        assert_ok(case_load(d, x->path, 1, rows, &e), e);
      }
      free(text);
      ac_ckpt_close(c);
      continue;
    }
    newest = (int)x->number;
    if (case_load(d, x->path, newest, rows, &e) != AC_OK) fail_msg("%s: %s", what, e.msg);
  }
  if (newest < acked) fail_msg("%s: %d was acknowledged, %d is the newest", what, acked, newest);
  ac_ckpt_list_free(&l);
}

static void cuts(void **state) {
  uint64_t seed = case_seed();
  char *image = ac_test_tmp_path("disk.img"), *mount = ac_test_tmp_path("disk"), parent[400], what[200];
  const char *count = getenv("ACCEL_TEST_CUTS");
  const int n = count != NULL ? atoi(count) : CUTS;
  int total = 0, flushed = 0;
  ac_err e;
  set_up(image, mount);
  for (int i = 0; i < n; i++) {
    const int flag = ac_test_random(&seed) % 2 == 0 ? FLUSH : NO_FLUSH;
    const bool asynchronous = ac_test_random(&seed) % 3 == 0, replace = ac_test_random(&seed) % 4 == 0;
    const int64_t rows = ac_test_random(&seed) % 3 == 0 ? 140000 : 300;
    const unsigned after_us = 3000 + (unsigned)(ac_test_random(&seed) % 150000);
    snprintf(parent, sizeof parent, "%s/run-%d", mount, i);
    snprintf(what, sizeof what, "cut %d: %lld rows, journal %s, after %u us%s", i, (long long)rows, flag == FLUSH ? "flushed" : "not flushed",
             after_us, replace ? ", replacing" : "");
    int ack[2];
    assert_int_equal(pipe(ack), 0);
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) write_on(parent, rows, asynchronous, replace, ack[1]);
    close(ack[1]);
    usleep(after_us);
    const int fd = open(mount, O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    uint32_t how = (uint32_t)flag;
    if (ioctl(fd, (unsigned long)(uint32_t)SHUTDOWN, &how) != 0) {
      printf("skipped: this kernel does not shut a file system down\n");
      kill(pid, SIGKILL);
      waitpid(pid, NULL, 0);
      close(fd);
      run("umount '%s'%s", mount, "");
      exit(SKIP);
    }
    close(fd);
    int acked = 0, step, status;
    while (read(ack[0], &step, sizeof step) == (ssize_t)sizeof step) acked = step; /* until the writer finds its disk gone */
    close(ack[0]);
    waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("%s: the writer ends with %d", what, status);
    if (run("umount '%s'%s", mount, "") != 0 || run("mount -o loop '%s' '%s'", image, mount) != 0) fail_msg("%s: cannot mount again", what);
    ac_device *d;
    assert_ok(ac_device_open(ac_device_cpu_vtable(), 0, 1 << 28, NULL, &d, &e), e);
    check(d, parent, rows, replace, acked, what);
    ac_device_release(d);
    total += acked;
    flushed += flag == FLUSH;
    assert_ok(aci_ckpt_remove_tree(parent, &e), e);
  }
  printf("%d cuts, %d with the journal flushed, %d checkpoints acknowledged, none lost\n", n, flushed, total);
  assert_true(total > 0);
  run("umount '%s'%s", mount, "");
  unlink(image);
  free(image);
  free(mount);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(cuts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
