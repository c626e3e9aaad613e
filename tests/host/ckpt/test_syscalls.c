/* Every system call of a save and of a load fails once, and from then on always: with ENOSPC, with EIO, with EINTR, by moving fewer bytes.
 * After each the checkpoint before it is whole, the new one is whole or not there, an error says what and where, and nothing stays
 * behind once a later save has committed. The same when the process dies at every one of them, also while it replaces a checkpoint, of
 * which one is whole at any moment. The calls are this program's own, which stand before the C library's.
 *
 * tier: sampled, memory (one of several calls in a run of every change) */
#include "host/ckpt/ckpt_case.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum kind { NONE, WITH_ENOSPC, WITH_EIO, WITH_EINTR, SHORT, KINDS, DIE };
static const char *const kind_names[KINDS] = {"none", "ENOSPC", "EIO", "EINTR", "short"};
enum { STORM = 60 }; /* calls in a row that EINTR interrupts */

/* ---- the faults ---- */

static _Atomic bool armed;
static _Atomic int calls;       /* since it was armed */
static _Atomic int fault_at;    /* the call that fails, from 1 */
static _Atomic bool persistent; /* and those after it */
static _Atomic int fault_kind;
static _Atomic bool no_exchange; /* a file system that cannot exchange two names */
static char last_call[32]; /* of the first that failed, for messages */

/* Whether this call fails; short ones are the caller's. moves: it moves bytes. */
static enum kind fault(const char *name, bool moves) {
  if (!atomic_load(&armed)) return NONE;
  const int i = atomic_fetch_add(&calls, 1) + 1, at = atomic_load(&fault_at);
  const enum kind k = (enum kind)atomic_load(&fault_kind);
  if (at == 0 || i < at || k == NONE) return NONE;
  if (i > at && (!atomic_load(&persistent) || (k == WITH_EINTR && i > at + STORM))) return NONE;
  if (k == DIE) _exit(0); /* all threads at once, as by kill -9 */
  if (i == at) snprintf(last_call, sizeof last_call, "%s", name);
  if (k == SHORT) return moves ? SHORT : NONE;
  errno = k == WITH_ENOSPC ? ENOSPC : k == WITH_EIO ? EIO : EINTR;
  return k;
}

#define REAL(name, type)        \
  static __typeof__(type) real; \
  if (real == NULL) *(void **)(&real) = dlsym(RTLD_NEXT, name)

int open(const char *path, int flags, ...) {
  REAL("open", int (*)(const char *, int, ...));
  va_list ap;
  va_start(ap, flags);
  const int mode = flags & O_CREAT ? va_arg(ap, int) : 0;
  va_end(ap);
  if (strncmp(path, "/proc", 5) == 0) return real(path, flags, mode);
  return fault("open", false) != NONE ? -1 : real(path, flags, mode);
}
int openat(int at, const char *path, int flags, ...) {
  REAL("openat", int (*)(int, const char *, int, ...));
  va_list ap;
  va_start(ap, flags);
  const int mode = flags & O_CREAT ? va_arg(ap, int) : 0;
  va_end(ap);
  return fault("openat", false) != NONE ? -1 : real(at, path, flags, mode);
}
int close(int fd) { /* the descriptor is gone in any case, as in Linux */
  REAL("close", int (*)(int));
  const int err = errno;
  const enum kind k = fault("close", false);
  const int failed = errno;
  errno = err;
  const int rc = real(fd);
  if (k == NONE) return rc;
  errno = failed;
  return -1;
}
ssize_t write(int fd, const void *p, size_t n) {
  REAL("write", ssize_t(*)(int, const void *, size_t));
  const enum kind k = fault("write", n > 1);
  return k == NONE ? real(fd, p, n) : k == SHORT ? real(fd, p, n / 2) : -1;
}
ssize_t pwrite(int fd, const void *p, size_t n, off_t at) {
  REAL("pwrite", ssize_t(*)(int, const void *, size_t, off_t));
  const enum kind k = fault("pwrite", n > 1);
  const size_t half = n / 2 > 4096 ? n / 2 / 4096 * 4096 : n / 2;
  return k == NONE ? real(fd, p, n, at) : k == SHORT ? real(fd, p, half, at) : -1;
}
ssize_t read(int fd, void *p, size_t n) {
  REAL("read", ssize_t(*)(int, void *, size_t));
  const enum kind k = fault("read", n > 1);
  return k == NONE ? real(fd, p, n) : k == SHORT ? real(fd, p, n / 2) : -1;
}
ssize_t pread(int fd, void *p, size_t n, off_t at) {
  REAL("pread", ssize_t(*)(int, void *, size_t, off_t));
  const enum kind k = fault("pread", n > 1);
  return k == NONE ? real(fd, p, n, at) : k == SHORT ? real(fd, p, n / 2, at) : -1;
}
int fallocate(int fd, int mode, off_t at, off_t n) {
  REAL("fallocate", int (*)(int, int, off_t, off_t));
  return fault("fallocate", false) != NONE ? -1 : real(fd, mode, at, n);
}
int ftruncate(int fd, off_t n) {
  REAL("ftruncate", int (*)(int, off_t));
  return fault("ftruncate", false) != NONE ? -1 : real(fd, n);
}
int fsync(int fd) {
  REAL("fsync", int (*)(int));
  return fault("fsync", false) != NONE ? -1 : real(fd);
}
int rename(const char *from, const char *to) {
  REAL("rename", int (*)(const char *, const char *));
  return fault("rename", false) != NONE ? -1 : real(from, to);
}
int mkdir(const char *path, mode_t mode) {
  REAL("mkdir", int (*)(const char *, mode_t));
  return fault("mkdir", false) != NONE ? -1 : real(path, mode);
}
int rmdir(const char *path) {
  REAL("rmdir", int (*)(const char *));
  return fault("rmdir", false) != NONE ? -1 : real(path);
}
int unlink(const char *path) {
  REAL("unlink", int (*)(const char *));
  return fault("unlink", false) != NONE ? -1 : real(path);
}
int unlinkat(int at, const char *path, int flags) {
  REAL("unlinkat", int (*)(int, const char *, int));
  return fault("unlinkat", false) != NONE ? -1 : real(at, path, flags);
}
long syscall(long number, ...) {
  REAL("syscall", long (*)(long, ...));
  long a[6];
  va_list ap;
  va_start(ap, number);
  for (int i = 0; i < 6; i++) a[i] = va_arg(ap, long);
  va_end(ap);
  if (number == SYS_renameat2 && atomic_load(&no_exchange)) {
    errno = EINVAL;
    return -1;
  }
  const char *name = number == SYS_renameat2        ? "renameat2"
                     : number == SYS_io_uring_setup ? "io_uring_setup"
                     : number == SYS_io_uring_enter ? "io_uring_enter"
                                                    : NULL;
  /* what waits for blocks that the kernel still reads may be interrupted and must not fail for good */
  if (name != NULL && !(number == SYS_io_uring_enter && a[2] > 0 && atomic_load(&fault_kind) != WITH_EINTR) && fault(name, false) != NONE)
    return -1;
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void arm(int at, enum kind k, bool always) {
  atomic_store(&calls, 0);
  atomic_store(&fault_at, at);
  atomic_store(&fault_kind, k);
  atomic_store(&persistent, always);
  last_call[0] = 0;
  atomic_store(&armed, true);
}
static int disarm(void) {
  atomic_store(&armed, false);
  return atomic_load(&calls);
}

/* ---- the tests ---- */

static ac_device *cpu;
static int open_device(void **state) {
  ac_err e;
  return ac_device_open(ac_device_cpu_vtable(), 0, 1 << 28, NULL, &cpu, &e) != AC_OK;
}
static int close_device(void **state) {
  ac_device_release(cpu);
  return 0;
}

typedef struct how {
  const char *name;
  int64_t rows;
  const char *direct, *uring;
  int every; /* of its calls one of so many in a run of every change */
} how;

/* The folder holds committed checkpoints and nothing else. */
static void assert_clean(const char *parent, const char *what) {
  ac_ckpt_list l;
  ac_err e;
  assert_ok(ac_ckpt_scan(parent, &l, &e), e);
  for (int i = 0; i < l.n; i++)
    if (l.entry[i].status != AC_CKPT_OK) fail_msg("%s: %s is left behind: %s", what, l.entry[i].name, l.entry[i].reason);
  ac_ckpt_list_free(&l);
}

/* Makes what a save left look old: one that was just made may belong to a process that has not yet said so. */
static void age(const char *parent) {
  ac_ckpt_list l;
  ac_err e;
  const struct timespec old[2] = {{1000, 0}, {1000, 0}};
  assert_ok(ac_ckpt_scan(parent, &l, &e), e);
  for (int i = 0; i < l.n; i++) {
    char *owner = aci_ckpt_join(l.entry[i].path, "owner-0.lock");
    utimensat(AT_FDCWD, owner, old, 0);
    utimensat(AT_FDCWD, l.entry[i].path, old, 0);
    free(owner);
  }
  ac_ckpt_list_free(&l);
}

/* Two that are in every sample, so that each has a save that fails and one that does not. */
static bool is_in_each_sample(int at, enum kind k, bool always) {
  return at == 1 && ((k == WITH_ENOSPC && always) || (k == WITH_EINTR && !always));
}

static void save_with(const how *h) {
  char first[512], second[512], what[160];
  const case_size z = {h->rows, 0, 1};
  ac_err e;
  setenv("ACCEL_DIRECT_IO", h->direct, 1);
  setenv("ACCEL_IO_URING", h->uring, 1);
  char *parent = case_folder(h->name);
  case_path(first, sizeof first, parent, 1);
  case_path(second, sizeof second, parent, 2);
  assert_ok(case_save(cpu, parent, 1, &z, NULL, NULL, NULL, NULL, &e), e);
  arm(0, NONE, false);
  assert_ok(case_save(cpu, parent, 2, &z, NULL, NULL, NULL, NULL, &e), e);
  const int n = disarm();
  assert_true(n > 20);
  int failed = 0, committed = 0, run = 0;
  for (int at = 1; at <= n; at++)
    for (int k = WITH_ENOSPC; k < KINDS; k++)
      for (int always = 0; always < 2; always++) {
        if (!ac_test_sampled(h->every) && !is_in_each_sample(at, (enum kind)k, always)) continue;
        assert_ok(aci_ckpt_remove_tree(second, &e), e);
        e.msg[0] = 0;
        arm(at, (enum kind)k, always);
        const ac_status st = case_save(cpu, parent, 2, &z, NULL, NULL, NULL, NULL, &e);
        disarm();
        snprintf(what, sizeof what, "%s, call %d of %d (%s), %s %s", h->name, at, n, last_call, kind_names[k], always ? "always" : "once");
        ac_err later;
        if (case_load(cpu, first, 1, h->rows, &later) != AC_OK) fail_msg("%s: the checkpoint before it: %s", what, later.msg);
        const ac_status got = case_load(cpu, second, 2, h->rows, &later);
        if (got != AC_OK && got != AC_NOT_FOUND) fail_msg("%s: half of a checkpoint: %s", what, later.msg);
        if (st == AC_OK && got != AC_OK) fail_msg("%s: acknowledged, but: %s", what, later.msg);
        if (st != AC_OK && (strstr(e.msg, h->name) == NULL || strchr(e.msg, '\n') != NULL)) fail_msg("%s: the error says: %s", what, e.msg);
        if (st != AC_OK && k == WITH_EINTR && !always) fail_msg("%s: failed: %s", what, e.msg);
        run++;
        failed += st != AC_OK;
        committed += got == AC_OK;
        /* a later save takes away what is left */
        assert_ok(aci_ckpt_remove_tree(second, &e), e);
        if (st != AC_OK && always) {
          age(parent);
          assert_ok(case_save(cpu, parent, 2, &z, NULL, NULL, NULL, NULL, &e), e);
          assert_clean(parent, what);
        }
      }
  printf("%s: %d calls, %d faults, %d saves failed, %d committed\n", h->name, n, run, failed, committed);
  assert_true(failed > 0 && committed > 0);
  assert_ok(aci_ckpt_remove_tree(parent, &e), e);
  free(parent);
}

static void small_saves(void **state) { save_with(&(how){"small", 40, "1", "1", 5}); }
static void direct_saves(void **state) { save_with(&(how){"direct", 140000, "1", "0", 61}); }
static void uring_saves(void **state) { save_with(&(how){"uring", 140000, "1", "1", 61}); }
static void buffered_saves(void **state) { save_with(&(how){"buffered", 140000, "0", "0", 61}); }

static void loads(void **state) {
  const case_size z = {40, 0, 1};
  char path[512];
  ac_err e;
  char *parent = case_folder("load");
  case_path(path, sizeof path, parent, 1);
  assert_ok(case_save(cpu, parent, 1, &z, NULL, NULL, NULL, NULL, &e), e);
  arm(0, NONE, false);
  assert_ok(case_load(cpu, path, 1, z.rows, &e), e);
  const int n = disarm();
  assert_true(n > 10);
  int failed = 0;
  for (int at = 1; at <= n; at++)
    for (int k = WITH_EIO; k < KINDS; k++)
      for (int always = 0; always < 2; always++) {
        e.msg[0] = 0;
        arm(at, (enum kind)k, always);
        const ac_status st = case_load(cpu, path, 1, z.rows, &e);
        disarm();
        failed += st != AC_OK;
        if (st != AC_OK && (strstr(e.msg, "step-1") == NULL || strchr(e.msg, '\n') != NULL))
          fail_msg("call %d (%s), %s: the error says: %s", at, last_call, kind_names[k], e.msg);
        if (st != AC_OK && k == SHORT && !always) fail_msg("call %d (%s): a short read fails: %s", at, last_call, e.msg);
        assert_ok(case_load(cpu, path, 1, z.rows, &e), e);
      }
  printf("load: %d calls, %d loads failed\n", n, failed);
  assert_true(failed > 0);
  assert_ok(aci_ckpt_remove_tree(parent, &e), e);
  free(parent);
}

/* ---- dying ---- */

/* The child dies at call `at` of a save; with 0 it does not, and tells how many there are. */
static int die_at(const char *parent, int step, const case_size *z, bool replace, int at) {
  int out[2], n = 0;
  assert_int_equal(pipe(out), 0);
  fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0) {
    ac_device *d;
    ac_err e;
    char path[512];
    if (ac_device_open(ac_device_cpu_vtable(), 0, 1 << 26, NULL, &d, &e) != AC_OK) _exit(1);
    arm(at, at == 0 ? NONE : DIE, false);
    ac_status st;
    if (replace) {
      ac_ckpt_options o = AC_CKPT_OPTIONS_INIT;
      ac_ckpt_save *s;
      o.replace = true;
      case_path(path, sizeof path, parent, step);
      st = ac_ckpt_create(path, &o, &s, &e);
      if (st == AC_OK) st = ac_ckpt_add_bytes(s, "new", "new", 3, &e);
      if (st == AC_OK) st = ac_ckpt_start(s, NULL, 0, NULL, NULL, &e);
      if (st == AC_OK) st = ac_ckpt_wait(s, -1, &e);
    } else {
      st = case_save(d, parent, step, z, NULL, NULL, NULL, NULL, &e);
    }
    n = disarm();
    if (write(out[1], &n, sizeof n) < 0) _exit(1);
    _exit(st == AC_OK ? 0 : 2);
  }
  close(out[1]);
  int status;
  waitpid(pid, &status, 0);
  if (read(out[0], &n, sizeof n) < 0) n = 0;
  close(out[0]);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("dying at call %d: status %d", at, status);
  return n;
}

static void dies_saving(void **state) {
  const case_size z = {40, 0, 1};
  char first[512], second[512], what[64];
  ac_err e;
  char *parent = case_folder("dies");
  case_path(first, sizeof first, parent, 1);
  case_path(second, sizeof second, parent, 2);
  assert_ok(case_save(cpu, parent, 1, &z, NULL, NULL, NULL, NULL, &e), e);
  const int n = die_at(parent, 2, &z, false, 0);
  assert_true(n > 20);
  for (int at = 1; at <= n; at++) {
    assert_ok(aci_ckpt_remove_tree(second, &e), e);
    die_at(parent, 2, &z, false, at);
    snprintf(what, sizeof what, "dying at call %d of %d", at, n);
    if (case_load(cpu, first, 1, z.rows, &e) != AC_OK) fail_msg("%s: %s", what, e.msg);
    const ac_status st = case_load(cpu, second, 2, z.rows, &e);
    if (st != AC_OK && st != AC_NOT_FOUND) fail_msg("%s: %s", what, e.msg);
    age(parent);
    assert_ok(aci_ckpt_remove_tree(second, &e), e);
    assert_ok(case_save(cpu, parent, 2, &z, NULL, NULL, NULL, NULL, &e), e);
    assert_clean(parent, what);
  }
  assert_ok(aci_ckpt_remove_tree(parent, &e), e);
  free(parent);
}

/* How many whole checkpoints a folder has, and whether the newest is the new one. */
static int whole(const char *parent, bool *is_new) {
  ac_ckpt_list l;
  ac_err e;
  int n = 0;
  assert_ok(ac_ckpt_scan(parent, &l, &e), e);
  for (int i = 0; i < l.n; i++) {
    if (l.entry[i].status != AC_CKPT_OK) continue;
    ac_ckpt *c;
    assert_ok(ac_ckpt_open(l.entry[i].path, &c, &e), e);
    *is_new = strcmp(ac_ckpt_file_at(c, 0)->name, "new") == 0;
    if (!*is_new) assert_ok(case_load(cpu, l.entry[i].path, (int)l.entry[i].number, 40, &e), e);
    ac_ckpt_close(c);
    n++;
  }
  ac_ckpt_list_free(&l);
  return n;
}

static void dies_replacing(void **state) {
  const case_size z = {40, 0, 1};
  ac_err e;
  for (int exchange = 0; exchange < 2; exchange++) {
    int old = 0, fresh = 0;
    atomic_store(&no_exchange, exchange == 0);
    char *parent = case_folder("replaces");
    assert_ok(case_save(cpu, parent, 1, &z, NULL, NULL, NULL, NULL, &e), e);
    const int n = die_at(parent, 1, &z, true, 0);
    bool is_new = false;
    assert_int_equal(whole(parent, &is_new), 1);
    assert_true(is_new && n > 20);
    for (int at = 1; at <= n; at++) {
      assert_ok(aci_ckpt_remove_tree(parent, &e), e);
      assert_int_equal(mkdir(parent, 0777), 0);
      assert_ok(case_save(cpu, parent, 1, &z, NULL, NULL, NULL, NULL, &e), e);
      die_at(parent, 1, &z, true, at);
      const int k = whole(parent, &is_new);
      if (k < 1) fail_msg("%s exchange, dying at call %d of %d: no whole checkpoint", exchange ? "with" : "without", at, n);
      old += !is_new;
      fresh += is_new;
      /* what is left goes, and one stays */
      age(parent);
      const case_size one = {40, 0, 1};
      assert_ok(case_save(cpu, parent, 7, &one, NULL, NULL, NULL, NULL, &e), e);
      bool ignored;
      const int left = whole(parent, &ignored);
      if (left < 2) fail_msg("%s exchange, dying at call %d of %d: the old one was swept away", exchange ? "with" : "without", at, n);
    }
    printf("replacing %s exchange: %d calls, %d times the old one, %d the new one\n", exchange ? "with" : "without", n, old, fresh);
    assert_true(old > 0 && fresh > 0);
    assert_ok(aci_ckpt_remove_tree(parent, &e), e);
    free(parent);
  }
  atomic_store(&no_exchange, false);
}

/* Space is asked for before the first byte, and what is missing is said. */
static void space(void **state) {
  const case_size z = {40, 0, 1};
  ac_err e;
  char *parent = case_folder("space");
  for (int at = 1;; at++) {
    arm(at, WITH_ENOSPC, false);
    const ac_status st = case_save(cpu, parent, 1, &z, NULL, NULL, NULL, NULL, &e);
    disarm();
    if (strcmp(last_call, "fallocate") != 0) {
      char path[512];
      case_path(path, sizeof path, parent, 1);
      ac_err ignored;
      aci_ckpt_remove_tree(path, &ignored);
      assert_true(at < 200);
      continue;
    }
    assert_int_equal(st, AC_IO);
    ac_test_contains(e.msg, "do not fit: No space left on device", __FILE__, __LINE__);
    ac_test_contains(e.msg, "needed, free: ", __FILE__, __LINE__);
    break;
  }
  assert_clean(parent, "space");
  assert_ok(aci_ckpt_remove_tree(parent, &e), e);
  free(parent);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(small_saves),  cmocka_unit_test(direct_saves), cmocka_unit_test(uring_saves),
                                     cmocka_unit_test(buffered_saves), cmocka_unit_test(loads),        cmocka_unit_test(space),
                                     cmocka_unit_test(dies_saving),    cmocka_unit_test(dies_replacing)};
  return cmocka_run_group_tests(tests, open_device, close_device);
}
