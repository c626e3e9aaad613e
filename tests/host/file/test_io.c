/* Atomic files: the target is the old one or the new one, never between, and after any failure nothing
 * else is left. Faults are real ones: a limit on file sizes, a full file system, folders without
 * permission, descriptors that broke. */
#include "support/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accel/file.h"
#include "file/io.h"

static char *folder; /* emptied before each test */

static void empty_folder(const char *path) {
  DIR *d = opendir(path);
  assert_non_null(d);
  for (struct dirent *x; (x = readdir(d)) != NULL;) {
    char file[4096];
    if (strcmp(x->d_name, ".") == 0 || strcmp(x->d_name, "..") == 0) continue;
    snprintf(file, sizeof file, "%s/%s", path, x->d_name);
    assert_int_equal(remove(file), 0);
  }
  closedir(d);
}

static int begin(void **state) {
  folder = ac_test_tmp_path("box");
  mkdir(folder, 0755);
  chmod(folder, 0755);
  empty_folder(folder);
  return chdir(folder);
}
static int end(void **state) {
  empty_folder(folder);
  int bad = chdir("..");
  rmdir(folder);
  free(folder);
  return bad;
}

/* A process of its own that begins to write `name`, and is killed or commits. */
static void in_another(const char *name, bool killed) {
  ac_err e;
  int status;
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    aci_atomic_file f;
    if (aci_atomic_open(&f, name, 3, &e) != AC_OK || aci_atomic_write(&f, "new", 3, &e) != AC_OK) _exit(1);
    if (killed) kill(getpid(), SIGKILL);
    _exit(aci_atomic_commit(&f, &e) == AC_OK ? 0 : 2);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(killed ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Files of the folder we are in. */
static int n_files(void) {
  DIR *d = opendir(".");
  int n = 0;
  for (struct dirent *x; (x = readdir(d)) != NULL;)
    n += strcmp(x->d_name, ".") != 0 && strcmp(x->d_name, "..") != 0;
  closedir(d);
  return n;
}

static int n_open(void) {
  DIR *d = opendir("/proc/self/fd");
  int n = 0;
  while (readdir(d) != NULL) n++;
  closedir(d);
  return n;
}

static void holds(const char *path, const char *text) {
  size_t n;
  char *bytes = ac_test_read(path, &n);
  assert_string_equal(bytes, text);
  assert_int_equal(n, strlen(text));
  free(bytes);
}

static mode_t mode_of(const char *path) {
  struct stat sb;
  assert_int_equal(stat(path, &sb), 0);
  return sb.st_mode & 07777;
}

/* The whole way in pieces; whatever fails, everything is given back. */
static ac_status write_all(const char *path, const char *text, bool ask, ac_err *e) {
  aci_atomic_file f;
  size_t n = strlen(text);
  ac_status st = aci_atomic_open(&f, path, ask ? n : 0, e);
  for (size_t i = 0; i < n && st == AC_OK; i += 3)
    st = aci_atomic_write(&f, text + i, n - i < 3 ? n - i : 3, e);
  if (st == AC_OK) st = aci_atomic_commit(&f, e);
  aci_atomic_abort(&f);
  assert_int_equal(f.fd, -1);
  assert_null(f.path);
  assert_null(f.tmp);
  return st;
}

static void makes_a_file(void **state) {
  ac_err e;
  mode_t old = umask(027);
  int fds = n_open();
  assert_ok(write_all("new", "some text", true, &e), e); /* a path without a folder */
  umask(old);
  holds("new", "some text");
  assert_int_equal(mode_of("new"), 0640);
  assert_ok(write_all("./empty", "", false, &e), e);
  holds("empty", "");
  assert_int_equal(n_files(), 2);
  assert_int_equal(n_open(), fds);
}

static void replaces_at_once(void **state) {
  ac_err e;
  char old[4] = {0};
  ac_test_write("t", "old", 3);
  chmod("t", 0604);
  int fd = open("t", O_RDONLY);
  aci_atomic_file f;
  assert_ok(aci_atomic_open(&f, "t", 100, &e), e);
  assert_ok(aci_atomic_write(&f, "new text", 8, &e), e);
  holds("t", "old"); /* until the commit */
  assert_ok(aci_atomic_commit(&f, &e), e);
  aci_atomic_abort(&f);
  holds("t", "new text"); /* and not the 100 bytes that were asked for */
  assert_int_equal(mode_of("t"), 0604);
  assert_int_equal(pread(fd, old, 3, 0), 3);
  assert_string_equal(old, "old"); /* who had it open keeps what he had */
  close(fd);
  chmod("t", 0444); /* the folder decides who may replace; the file stays read-only */
  assert_ok(write_all("t", "third", false, &e), e);
  assert_int_equal(mode_of("t"), 0444);
  chmod("t", 04755); /* but no new file runs as somebody else */
  assert_ok(write_all("t", "fourth", false, &e), e);
  assert_int_equal(mode_of("t"), 0755);
  assert_int_equal(n_files(), 1);
}

static void keeps_the_owner(void **state) {
  ac_err e;
  struct stat sb;
  if (geteuid() != 0) skip();
  ac_test_write("t", "old", 3);
  assert_int_equal(chown("t", 65534, 65534), 0);
  assert_ok(write_all("t", "new", false, &e), e);
  assert_int_equal(stat("t", &sb), 0);
  assert_int_equal(sb.st_uid, 65534);
  assert_int_equal(sb.st_gid, 65534);
}

static void abort_leaves_no_trace(void **state) {
  ac_err e;
  aci_atomic_file f = {.fd = -1};
  aci_atomic_abort(&f);
  ac_test_write("t", "old", 3);
  int fds = n_open();
  assert_ok(aci_atomic_open(&f, "t", 10, &e), e);
  assert_ok(aci_atomic_write(&f, "new", 3, &e), e);
  assert_int_equal(n_files(), 2);
  aci_atomic_abort(&f);
  aci_atomic_abort(&f);
  holds("t", "old");
  assert_int_equal(n_files(), 1);
  assert_int_equal(n_open(), fds);
}

static void follows_links(void **state) {
  ac_err e;
  struct stat sb;
  ac_test_write("real", "old", 3);
  assert_int_equal(symlink("real", "link"), 0);
  assert_ok(write_all("link", "new", false, &e), e);
  assert_int_equal(lstat("link", &sb), 0);
  assert_true(S_ISLNK(sb.st_mode));
  holds("real", "new");
  assert_int_equal(symlink("nowhere", "dangling"), 0); /* leads nowhere: it is replaced itself */
  assert_ok(write_all("dangling", "new", false, &e), e);
  assert_int_equal(lstat("dangling", &sb), 0);
  assert_true(S_ISREG(sb.st_mode));
  assert_int_equal(n_files(), 3);
}

/* Without a descriptor for the folder nothing can be said to be on disk. */
static void no_descriptors(void **state) {
  ac_err e;
  struct rlimit was, none;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
  none = was;
  none.rlim_cur = 0;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  const ac_status st = aci_sync_folder(".", &e);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
  assert_fails(st, IO, ".: the folder cannot be synced to disk: Too many open files", e);
  assert_ok(aci_sync_folder(".", &e), e);
  assert_ok(aci_sync_folder("nowhere", &e), e);
}

/* The kernel follows no such link where fs.protected_symlinks is set. */
static void links_of_other_users(void **state) {
  ac_err e;
  if (geteuid() != 0) skip();
  ac_test_write("real", "old", 3);
  mkdir("shared", 0700);
  assert_int_equal(chmod("shared", 01777), 0);
  assert_int_equal(symlink("../real", "shared/link"), 0);
  assert_ok(write_all("shared/link", "ours", false, &e), e);
  assert_int_equal(lchown("shared/link", 65534, 65534), 0);
  assert_fails(write_all("shared/link", "new", false, &e), IO,
               "shared/link: another user's link in a shared folder is not followed: Permission denied", e);
  holds("real", "ours");
  assert_int_equal(chmod("shared", 0777), 0);
  assert_ok(write_all("shared/link", "new", false, &e), e);
  holds("real", "new");
  unlink("shared/link");
  rmdir("shared");
}

static void refuses_what_is_no_file(void **state) {
  ac_err e;
  struct stat sb;
  mkdir("dir", 0755);
  assert_fails(write_all("dir", "x", false, &e), IO, "dir: is a folder and cannot be replaced", e);
  assert_int_equal(mkfifo("pipe", 0600), 0);
  assert_fails(write_all("pipe", "x", false, &e), IO, "pipe: is not a regular file", e);
  assert_fails(write_all("/dev/null", "x", false, &e), IO, "/dev/null: is not a regular file", e);
  assert_int_equal(stat("/dev/null", &sb), 0);
  assert_true(S_ISCHR(sb.st_mode));
  assert_fails(write_all("", "x", false, &e), NOT_FOUND, "empty path", e);
  assert_fails(write_all("missing/t", "x", false, &e), NOT_FOUND,
               "missing/t: cannot create a temporary file next to it: No such file", e);
  ac_test_write("t", "old", 3);
  assert_fails(write_all("t/below", "x", false, &e), IO,
               "t/below: cannot create a temporary file next to it: Not a directory", e);
  holds("t", "old");
  assert_int_equal(n_files(), 3);
}

/* What a killed process was writing is removed by the next one that saves there, what others write is not. */
static void left_over(void **state) {
  aci_atomic_file f;
  ac_err e;
  const struct timespec then[2] = {{time(NULL) - 48 * 3600, 0}, {time(NULL) - 48 * 3600, 0}};
  in_another("t", true);
  in_another("other", true);
  assert_int_equal(n_files(), 1); /* the second has removed the first one's */
  in_another("t", false);
  holds("t", "new");
  assert_int_equal(n_files(), 1);
  /* one that lives, until it is told to go on */
  int ready[2], go[2], status;
  char byte = 0;
  assert_true(pipe(ready) == 0 && pipe(go) == 0);
  const pid_t child = fork();
  if (child == 0) {
    if (aci_atomic_open(&f, "u", 3, &e) != AC_OK || aci_atomic_write(&f, "old", 3, &e) != AC_OK) _exit(1);
    if (write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1) _exit(2);
    _exit(aci_atomic_commit(&f, &e) == AC_OK ? 0 : 3);
  }
  assert_int_equal(read(ready[0], &byte, 1), 1);
  in_another("t", false);
  in_another("u", false);
  assert_int_equal(n_files(), 3);
  assert_int_equal(write(go[1], &byte, 1), 1);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  for (int i = 0; i < 2; i++) close(ready[i]), close(go[i]);
  holds("u", "old");
  assert_int_equal(n_files(), 2);
  /* of another boot: only of the same name, and old; names of other forms and folders never */
  static const char *const stay[] = {"v.tmp-00000000deadbeef", "t.tmp-0000000deadbeef", "t.tmp-00000000deadbeeg", "x.tmp-t-00000000deadbeef"};
  for (int i = 0; i < 4; i++) {
    ac_test_write(stay[i], "x", 1);
    assert_int_equal(utimensat(AT_FDCWD, stay[i], then, 0), 0);
  }
  assert_int_equal(mkdir("t.tmp-0000000012345678", 0755), 0);
  ac_test_write("t.tmp-00000000deadbeef", "x", 1);
  in_another("t", false);
  assert_int_equal(n_files(), 8);
  assert_int_equal(utimensat(AT_FDCWD, "t.tmp-00000000deadbeef", then, 0), 0);
  in_another("total", false); /* no name that begins so */
  assert_int_equal(n_files(), 9);
  in_another("t", false);
  assert_int_equal(n_files(), 8);
  assert_int_not_equal(access("t.tmp-00000000deadbeef", F_OK), 0);
}

static void long_names(void **state) {
  ac_err e;
  char name[257];
  memset(name, 'n', sizeof name);
  name[255] = 0; /* the longest that there is */
  assert_ok(write_all(name, "x", false, &e), e);
  holds(name, "x");
  name[255] = 'n';
  name[256] = 0;
  assert_fails(write_all(name, "x", false, &e), IO, "File name too long", e);
  assert_int_equal(n_files(), 1);
}

/* The disk is full after every number of bytes: a limit on the size of files stands for it. */
static void fails_at_every_byte(void **state) {
  const char *text = "the new text, forty bytes, of one file.";
  struct rlimit was, now;
  ac_err e;
  int fds = n_open();
  signal(SIGXFSZ, SIG_IGN); /* the program's part: by default the signal ends it */
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
  for (int ask = 0; ask < 2; ask++) {
    ac_test_write("t", "old", 3);
    for (rlim_t most = 0; most <= strlen(text); most++) {
      now = (struct rlimit){most, was.rlim_max};
      assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
      ac_status st = write_all("t", text, ask, &e);
      assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
      assert_int_equal(n_files(), 1);
      if (most < strlen(text)) {
        assert_int_equal(st, AC_IO);
        ac_test_contains(e.msg, "t: ", __FILE__, __LINE__);
        ac_test_contains(e.msg, "File too large", __FILE__, __LINE__);
        holds("t", "old");
      } else {
        assert_int_equal(st, AC_OK);
        holds("t", text);
      }
    }
  }
  signal(SIGXFSZ, SIG_DFL);
  assert_int_equal(n_open(), fds);
}

/* Runs in a child, which may give up rights. 0: passed; 77: the machine does not allow it. */
static int in_child(int (*fn)(void)) {
  int status;
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) _exit(fn());
  assert_int_equal(waitpid(pid, &status, 0), pid);
  if (!WIFEXITED(status)) fail_msg("the child ended by signal %d", WTERMSIG(status));
  return WEXITSTATUS(status);
}
static int failed(const char *what, int line) {
  print_error("line %d: %s\n", line, what);
  return 1;
}
#define CHECK(x) \
  if (!(x)) return failed(#x, __LINE__)

static int full_file_system(void) {
  ac_err e;
  static char big[200000];
  if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return 77;
  mkdir("m", 0755);
  if (mount("t", "m", "tmpfs", 0, "size=128k,nr_inodes=4") != 0) return 77;
  CHECK(chdir("m") == 0);
  ac_test_write("t", "old", 3);
  memset(big, 'x', sizeof big - 1);
  for (int ask = 0; ask < 2; ask++) { /* ask 1: refused before a byte is written */
    CHECK(write_all("t", big, ask, &e) == AC_IO);
    CHECK(strstr(e.msg, "No space left") != NULL);
    CHECK((strstr(e.msg, "199999 bytes do not fit") != NULL) == (ask == 1));
    CHECK(n_files() == 1);
    holds("t", "old");
  }
  /* no room for another name */
  ac_test_write("a", "", 0);
  ac_test_write("b", "", 0);
  CHECK(write_all("t", "new", false, &e) == AC_IO);
  CHECK(strstr(e.msg, "temporary file next to it: No space left") != NULL);
  holds("t", "old");
  unlink("b");
  CHECK(write_all("t", "new", true, &e) == AC_OK);
  holds("t", "new");
  return 0;
}
static void full_disk(void **state) {
  int result = in_child(full_file_system);
  rmdir("m");
  if (result == 77) skip();
  assert_int_equal(result, 0);
}

static int without_rights(void) {
  ac_err e;
  if (geteuid() == 0) CHECK(setgid(65534) == 0 && setuid(65534) == 0);
  CHECK(write_all("t", "new", false, &e) == AC_IO);
  CHECK(strstr(e.msg, "t: cannot create a temporary file next to it: Permission denied") != NULL);
  CHECK(write_all("fresh", "new", false, &e) == AC_IO);
  CHECK(n_files() == 1);
  ac_safetensors *f;
  int fd;
  uint64_t n;
  CHECK(aci_open_read("t", &fd, &n, &e) == AC_IO); /* readable by its owner only */
  CHECK(strstr(e.msg, "t: cannot open: Permission denied") != NULL || geteuid() != 65534);
  CHECK(ac_safetensors_open("t", &f, &e) == AC_IO && f == NULL);
  return 0;
}
static void unwritable_folder(void **state) {
  ac_test_write("t", "old", 3);
  chmod("t", geteuid() == 0 ? 0600 : 0);
  chmod(".", 0555);
  int result = in_child(without_rights);
  chmod(".", 0755);
  chmod("t", 0600);
  assert_int_equal(result, 0);
  holds("t", "old");
  assert_int_equal(n_files(), 1);
}

/* A descriptor that breaks under way: nothing written, nothing synced, nothing replaced. */
static void broken_descriptor(void **state) {
  ac_err e;
  aci_atomic_file f;
  ac_test_write("t", "old", 3);
  for (int late = 0; late < 2; late++) {
    assert_ok(aci_atomic_open(&f, "t", 0, &e), e);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(dup2(null, f.fd), f.fd); /* can neither be written nor synced */
    close(null);
    if (late) assert_fails(aci_atomic_commit(&f, &e), IO, "t: cannot sync it to disk", e);
    else assert_fails(aci_atomic_write(&f, "new", 3, &e), IO, "t: cannot write: Bad file descriptor", e);
    aci_atomic_abort(&f);
    holds("t", "old");
    assert_int_equal(n_files(), 1);
  }
  /* the folder goes away, or the target becomes a folder, before the commit */
  assert_ok(aci_atomic_open(&f, "t", 0, &e), e);
  unlink("t");
  mkdir("t", 0755);
  assert_fails(aci_atomic_commit(&f, &e), IO, "t: cannot replace it: Is a directory", e);
  aci_atomic_abort(&f);
  assert_int_equal(n_files(), 1);
}

enum { WRITERS = 4, ROUNDS = 50 };
static void *many_writes(void *arg) {
  char text[301];
  ac_err e;
  memset(text, 'a' + (int)(intptr_t)arg, 300);
  text[300] = 0;
  for (int i = 0; i < ROUNDS; i++) {
    aci_atomic_file f;
    if (aci_atomic_open(&f, "t", 300, &e) != AC_OK) return "open";
    if (aci_atomic_write(&f, text, 100, &e) != AC_OK || aci_atomic_write(&f, text + 100, 200, &e) != AC_OK)
      return "write";
    if (aci_atomic_commit(&f, &e) != AC_OK) return "commit";
  }
  return NULL;
}
/* Writers of one path do not meet, and a reader always finds one of their files whole. */
static void writers_of_one_path(void **state) {
  pthread_t thread[WRITERS];
  ac_test_write("t", "", 0);
  for (intptr_t i = 0; i < WRITERS; i++)
    assert_int_equal(pthread_create(&thread[i], NULL, many_writes, (void *)i), 0);
  for (int i = 0; i < 200; i++) {
    ac_err e;
    int fd;
    uint64_t n;
    char text[300];
    assert_ok(aci_open_read("t", &fd, &n, &e), e);
    assert_true(n == 300 || n == 0);
    assert_ok(aci_pread_all(fd, "t", text, n, 0, &e), e);
    for (uint64_t k = 1; k < n; k++) assert_int_equal(text[k], text[0]);
    close(fd);
  }
  for (int i = 0; i < WRITERS; i++) {
    void *failed;
    pthread_join(thread[i], &failed);
    assert_null(failed);
  }
  assert_int_equal(n_files(), 1);
}

static void reads_exactly(void **state) {
  ac_err e;
  int fd;
  uint64_t n;
  char text[16] = {0};
  ac_test_write("t", "0123456789", 10);
  assert_ok(aci_open_read("t", &fd, &n, &e), e);
  assert_int_equal(n, 10);
  assert_ok(aci_pread_all(fd, "t", text, 4, 6, &e), e);
  assert_string_equal(text, "6789");
  assert_ok(aci_pread_all(fd, "t", text, 0, 100, &e), e);
  assert_fails(aci_pread_all(fd, "t", text, 5, 6, &e), IO, "t: the file ends at byte 10, 1 bytes too early",
               e);
  assert_fails(aci_pread_all(fd, "t", text, 5, 60, &e), IO, "ends at byte 60, 5 bytes too early", e);
  close(fd);
  assert_fails(aci_open_read("none", &fd, &n, &e), NOT_FOUND, "none: cannot open", e);
  assert_int_equal(fd, -1);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, begin, end)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(left_over), /* first: a process looks once into a folder, and those that it forks do not look again */
      TEST(makes_a_file),      TEST(replaces_at_once),
      TEST(keeps_the_owner),   TEST(abort_leaves_no_trace),
      TEST(follows_links), TEST(links_of_other_users), TEST(no_descriptors),     TEST(refuses_what_is_no_file),
      TEST(long_names),        TEST(fails_at_every_byte),
      TEST(full_disk),         TEST(unwritable_folder),
      TEST(broken_descriptor), TEST(writers_of_one_path),
      TEST(reads_exactly),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
