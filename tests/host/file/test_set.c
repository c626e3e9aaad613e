/* Sets of files: the folder holds the old files or the new ones, whatever call a process is killed after, and the next set removes what
 * it left. Calls of the C library that change folders are this program's own, which count and kill. */
#include "support/test.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "file/set.h"

static char *folder;
static int calls, kill_after; /* 0: never */

static void counted(void) {
  if (++calls == kill_after) kill(getpid(), SIGKILL);
}
#define REAL(name, type)        \
  static __typeof__(type) real; \
  if (real == NULL) *(void **)(&real) = dlsym(RTLD_NEXT, name)
/* Another user puts a link to the folder "other" in the place of "shared" after the first of their files has been renamed. */
static bool exchanges;
static void exchanged(void) {
  if (!exchanges) return;
  exchanges = false;
  (void)!symlink("other", "link");
  aci_rename_as("shared", "link", ACI_RENAME_EXCHANGE);
}
int rename(const char *from, const char *to) {
  REAL("rename", int (*)(const char *, const char *));
  const int rc = real(from, to);
  counted();
  exchanged();
  return rc;
}
static bool no_links;
int link(const char *from, const char *to) {
  REAL("link", int (*)(const char *, const char *));
  if (no_links) errno = EPERM;
  const int rc = no_links ? -1 : real(from, to);
  counted();
  return rc;
}
int unlink(const char *path) {
  REAL("unlink", int (*)(const char *));
  const int rc = real(path);
  counted();
  return rc;
}
int renameat(int a, const char *from, int b, const char *to) {
  REAL("renameat", int (*)(int, const char *, int, const char *));
  const int rc = real(a, from, b, to);
  exchanged();
  return rc;
}
int fsync(int fd) {
  REAL("fsync", int (*)(int));
  const int rc = real(fd);
  counted();
  return rc;
}
static bool no_rename_new;
long syscall(long number, ...) {
  REAL("syscall", long (*)(long, ...));
  long a[6];
  va_list ap;
  va_start(ap, number);
  for (int i = 0; i < 6; i++) a[i] = va_arg(ap, long);
  va_end(ap);
  if (no_rename_new) {
    errno = EINVAL;
    return -1;
  }
  const long rc = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  counted();
  return rc;
}

/* Names in the folder in one line, sorted. Temporary ones count as "?". */
static const char *names(void) {
  static char text[1000];
  struct dirent **list;
  const int n = scandir(".", &list, NULL, alphasort);
  text[0] = 0;
  for (int i = 0; i < n; i++) {
    const char *name = strstr(list[i]->d_name, ".set-") != NULL || strstr(list[i]->d_name, ".tmp-") != NULL ? "?" : list[i]->d_name;
    if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0) strcat(strcat(text, text[0] != 0 ? " " : ""), name);
    free(list[i]);
  }
  free(list);
  return text;
}

static void empty(void) {
  DIR *d = opendir(".");
  for (struct dirent *x; (x = readdir(d)) != NULL;)
    if (strcmp(x->d_name, ".") != 0 && strcmp(x->d_name, "..") != 0) assert_int_equal(remove(x->d_name), 0);
  closedir(d);
}
static int begin(void **state) {
  folder = ac_test_tmp_path("sets");
  mkdir(folder, 0755);
  const int rc = chdir(folder);
  empty();
  calls = kill_after = 0;
  no_rename_new = no_links = false;
  return rc;
}
static int end(void **state) {
  empty();
  const int rc = chdir("..");
  rmdir(folder);
  free(folder);
  return rc;
}

static void put(aci_set *s, const char *name, const char *text) {
  ac_err e;
  aci_atomic_file f;
  assert_ok(aci_set_add(s, name, strlen(text), &f, &e), e);
  assert_ok(aci_atomic_write(&f, text, strlen(text), &e), e);
  assert_ok(aci_atomic_commit(&f, &e), e);
}
static void holds(const char *name, const char *text) {
  ac_err e;
  char *s;
  size_t n;
  assert_ok(aci_read_whole(name, 100, &s, &n, &e), e);
  assert_string_equal(s, text);
  free(s);
}

static void old_files(void) {
  ac_test_write("a", "old a", 5);
  ac_test_write("b", "old b", 5);
}
/* a and c are new, b goes. */
static ac_status replace(unsigned mode, ac_err *e) {
  aci_set *s;
  AC_TRY(aci_set_open(".", mode, &s, e));
  put(s, "c", "new c");
  put(s, "a", "new a");
  ac_status st = aci_set_remove(s, "b", e);
  if (st == AC_OK) st = aci_set_commit(s, e);
  aci_set_free(s);
  return st;
}

static void switches_at_once(void **state) {
  ac_err e;
  struct stat sb;
  for (int i = 0; i < 3; i++) {
    no_rename_new = i >= 1;
    no_links = i == 2;
    old_files();
    chmod("a", 0640);
    assert_ok(replace(0, &e), e);
    assert_string_equal(names(), "a c");
    holds("a", "new a");
    holds("c", "new c");
    assert_int_equal(stat("a", &sb), 0);
    assert_int_equal(sb.st_mode & 0777, 0640);
  }
  assert_ok(replace(0600, &e), e);
  assert_int_equal(stat("a", &sb), 0);
  assert_int_equal(sb.st_mode & 0777, 0600);
  assert_int_equal(stat("c", &sb), 0);
  assert_int_equal(sb.st_mode & 0777, 0600);
}

static void given_up(void **state) {
  ac_err e;
  aci_set *s;
  aci_atomic_file f;
  old_files();
  assert_ok(aci_set_open(".", 0, &s, &e), e);
  put(s, "a", "new a");
  assert_ok(aci_set_add(s, "d", 10, &f, &e), e);
  assert_fails(aci_set_commit(s, &e), STATE, ".: the file 'd' of the set is still open; commit or close it first", e);
  aci_set_free(s); /* closes d */
  assert_int_equal(f.fd, -1);
  aci_atomic_abort(&f);
  assert_string_equal(names(), "a b");
  holds("a", "old a");
  /* a file that was given up by itself may be written again */
  assert_ok(aci_set_open(".", 0, &s, &e), e);
  assert_ok(aci_set_add(s, "a", 10, &f, &e), e);
  aci_atomic_abort(&f);
  put(s, "a", "newer");
  assert_ok(aci_set_commit(s, &e), e);
  assert_fails(aci_set_commit(s, &e), RELEASED, ".: the set of files is closed", e);
  aci_set_free(s);
  assert_string_equal(names(), "a b");
  holds("a", "newer");
}

static void names_and_places(void **state) {
  ac_err e;
  aci_set *s;
  aci_atomic_file f;
  assert_ok(aci_set_open("new/folder/", 0, &s, &e), e);
  put(s, "x", "1");
  assert_ok(aci_set_commit(s, &e), e);
  aci_set_free(s);
  holds("new/folder/x", "1");
  assert_ok(aci_set_open("new/folder", 0, &s, &e), e);
  for (int i = 0; i < 5; i++) {
    const char *const bad[] = {"", "..", "x/y", "x\ny", ".accel-set"};
    assert_int_equal(aci_set_add(s, bad[i], 0, &f, &e), AC_INVALID);
    assert_int_equal(aci_set_remove(s, bad[i], &e), AC_INVALID);
  }
  put(s, "y", "2");
  assert_fails(aci_set_add(s, "y", 0, &f, &e), INVALID, "new/folder: the set already has a file 'y'", e);
  aci_set_free(s);
  assert_int_equal(symlink("../../target", "new/folder/link"), 0);
  ac_test_write("target", "kept", 4);
  assert_ok(aci_set_open("new/folder", 0, &s, &e), e);
  put(s, "link", "3"); /* replaced: the target may be another folder's */
  assert_ok(aci_set_commit(s, &e), e);
  aci_set_free(s);
  holds("target", "kept");
  holds("new/folder/link", "3");
  assert_int_equal(unlink("new/folder/x"), 0);
  assert_int_equal(unlink("new/folder/link"), 0);
  rmdir("new/folder");
}

static int warnings;
static char warning[600];
static void note_warning(void *user, ac_log_level level, const char *area, const char *text) {
  (void)user, (void)area;
  if (level != AC_LOG_WARN) return;
  warnings++;
  snprintf(warning, sizeof warning, "%s", text);
}

/* The file that a damaged note became, removed here. */
static bool was_set_aside(void) {
  bool found = false;
  DIR *d = opendir(".");
  for (struct dirent *x; (x = readdir(d)) != NULL;)
    if (strncmp(x->d_name, ".accel-set.damaged-", 19) == 0) found = remove(x->d_name) == 0;
  closedir(d);
  return found;
}

/* A damaged note changes nothing, is reported once, and is in the way of nobody. */
static void damaged_notes(void **state) {
  ac_err e;
  aci_atomic_file f;
  static const char *const bad[] = {"", "accel set 1\n", "accel set 1\nput ../x\ta\nend\n", "accel set 1\nput x\ta\nend\n",
                                    "accel set 1\nremove ../b\nend\n", "accel set 1\nrun b\nend\n",
                                    "accel set 1\nremove b\nput a\nend\n", "a link", "a folder"};
  enum { N = sizeof bad / sizeof *bad };
  ac_log_set(note_warning, NULL, AC_LOG_WARN);
  for (int i = 0; i < 3 * N; i++) {
    empty();
    old_files();
    warnings = 0;
    if (i % N == N - 2) assert_int_equal(symlink("a", ".accel-set"), 0);
    else if (i % N == N - 1) assert_int_equal(mkdir(".accel-set", 0755), 0);
    else ac_test_write(".accel-set", bad[i % N], strlen(bad[i % N]));
    if (i / N == 0) assert_ok(aci_set_recover(".", &e), e);
    else if (i / N == 1) assert_ok(replace(0, &e), e);
    else {
      assert_ok(aci_atomic_open(&f, "c", 5, &e), e);
      aci_atomic_abort(&f);
    }
    assert_int_equal(warnings, 1);
    ac_test_contains(warning, "./.accel-set: the note of an interrupted save is damaged, and was renamed .accel-set.damaged-", __FILE__, __LINE__);
    assert_true(was_set_aside());
    assert_string_equal(names(), i / N == 1 ? "a c" : "a b");
    holds("a", i / N == 1 ? "new a" : "old a");
    assert_ok(replace(0, &e), e);
    assert_int_equal(warnings, 1);
  }
  ac_log_set(NULL, NULL, AC_LOG_OFF);
  assert_ok(aci_set_recover("nowhere", &e), e);
}

/* A whole note that names a folder: the rest of it is carried out, and it is in the way of nobody. */
static void note_of_a_folder(void **state) {
  ac_err e;
  static const char note[] = "accel set 1\nput a.1.set-0123456789abcdef\tsub\nremove sub\nremove b\nend\n";
  old_files();
  mkdir("sub", 0755);
  ac_test_write("a.1.set-0123456789abcdef", "1", 1);
  ac_test_write(".accel-set", note, sizeof note - 1);
  assert_ok(replace(0, &e), e);
  assert_true(was_set_aside());
  assert_string_equal(names(), "a ? c sub"); /* of another boot and young: swept after a day */
}

/* In a sticky folder another user's note is not followed, and in any other folder it is. */
static void notes_of_other_users(void **state) {
  ac_err e;
  static const char note[] = "accel set 1\nremove b\nend\n";
  if (geteuid() != 0) skip(); /* only root can give files away */
  old_files();
  ac_test_write(".accel-set", note, sizeof note - 1);
  assert_int_equal(chown(".accel-set", 12345, 12345), 0);
  assert_int_equal(chmod(".", 01777), 0);
  assert_ok(aci_set_recover(".", &e), e);
  holds("b", "old b");
  assert_fails(replace(0, &e), IO, "./.accel-set: the note of another save is in the way: File exists", e);
  assert_string_equal(names(), ".accel-set a b");
  holds("b", "old b");
  assert_int_equal(chmod(".", 0777), 0);
  assert_ok(aci_set_recover(".", &e), e);
  assert_string_equal(names(), "a");
}

/* Their note changes nothing outside of the folder that holds it, although they exchange the folder meanwhile. */
static void folder_of_another_user(void **state) {
  ac_err e;
  static const char note[] = "accel set 1\nput a.1.set-0123456789abcdef\ta\nremove b\nend\n";
  if (geteuid() != 0) skip();
  mkdir("shared", 0755);
  mkdir("other", 0755);
  ac_test_write("shared/.accel-set", note, sizeof note - 1);
  ac_test_write("shared/a.1.set-0123456789abcdef", "1", 1);
  ac_test_write("shared/b", "2", 1);
  ac_test_write("other/b", "kept", 4);
  assert_int_equal(chown("shared/.accel-set", 12345, 12345), 0);
  exchanges = true;
  assert_ok(aci_set_recover("shared", &e), e);
  assert_false(exchanges);
  holds("other/b", "kept");
  holds("link/a", "1");
  assert_int_equal(access("link/b", F_OK), -1);
  assert_int_equal(access("link/.accel-set", F_OK), -1);
  unlink("link/a");
  unlink("other/b");
}

/* A note that cannot be carried out would be in the way of all that comes. */
static void removes_no_folder(void **state) {
  ac_err e;
  aci_set *s;
  old_files();
  mkdir("sub", 0755);
  assert_ok(aci_set_open(".", 0, &s, &e), e);
  put(s, "a", "new a");
  assert_fails(aci_set_remove(s, "sub", &e), IO, "./sub: is a folder and cannot be removed", e);
  assert_ok(aci_set_remove(s, "b", &e), e);
  assert_ok(aci_set_commit(s, &e), e);
  aci_set_free(s);
  assert_string_equal(names(), "a sub");
}

static void files_of_other_users(void **state) {
  int status;
  if (geteuid() != 0) skip();
  old_files();
  assert_int_equal(chmod(".", 01777), 0);
  const pid_t child = fork();
  if (child == 0) {
    ac_err e;
    aci_set *s;
    aci_atomic_file f;
    bool ok = setgid(12345) == 0 && setuid(12345) == 0 && aci_set_open(".", 0, &s, &e) == AC_OK;
    ok = ok && aci_set_add(s, "a", 0, &f, &e) == AC_IO && strstr(e.msg, "another user's file in a shared folder") != NULL;
    ok = ok && aci_set_remove(s, "b", &e) == AC_IO;
    if (ok) aci_set_free(s);
    _exit(ok ? 0 : 1);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  assert_int_equal(chmod(".", 0755), 0);
  assert_string_equal(names(), "a b");
}

/* A user's file may end in the mark and hex digits. */
static void names_of_users(void **state) {
  ac_err e;
  static const char *const name[] = {"train.set-0123456789abcdef", ".5.set-0123456789abcdef", "b.5.set-0123456789abcdef"};
  const struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
  old_files();
  for (int i = 0; i < 3; i++) {
    ac_test_write(name[i], "data", 4);
    assert_int_equal(utimensat(AT_FDCWD, name[i], old, 0), 0);
  }
  assert_ok(replace(0, &e), e);
  holds(name[0], "data");
  holds(name[1], "data");
  assert_int_equal(access(name[2], F_OK), -1);
}

/* A process of its own replaces the files, and is killed after its k-th call. True: it came to its end. The other ways to put the note in
 * place are those of NFS and of file systems without links. */
static bool ended(int k) {
  ac_err e;
  int status;
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    calls = 0;
    kill_after = k;
    _exit(replace(0, &e) == AC_OK ? 0 : 1);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
  return !WIFSIGNALED(status);
}

static void killed_anywhere(void **state) {
  ac_err e;
  int old = 0, new = 0, way = 0;
  bool over = false;
  for (int k = 1; way < 3; k++) {
    no_rename_new = way >= 1;
    no_links = way == 2;
    empty();
    old_files();
    over = ended(k);
    /* two kills leave no more than one */
    if (k % 2 == 0) ended(2);
    assert_ok(aci_set_recover(".", &e), e);
    const bool is_new = access("c", F_OK) == 0;
    holds("a", is_new ? "new a" : "old a");
    assert_int_equal(access("b", F_OK) == 0, !is_new);
    if (is_new) holds("c", "new c");
    *(is_new ? &new : &old) += 1;
    assert_ok(replace(0, &e), e);
    assert_string_equal(names(), "a c");
    if (!over) continue;
    assert_true(old >= 4 && new >= 4);
    way++;
    k = old = new = 0;
  }
}

/* A note whose process lives is waited for. */
static void waits_for_the_living(void **state) {
  ac_err e;
  int ready[2];
  char c;
  old_files();
  assert_int_equal(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    kill_after = -1;
    aci_set *s;
    if (aci_set_open(".", 0, &s, &e) != AC_OK) _exit(1);
    put(s, "a", "new a");
    put(s, "b", "new b");
    if (write(ready[1], "x", 1) != 1) _exit(1);
    usleep(20000);
    const ac_status st = aci_set_commit(s, &e);
    _exit(st == AC_OK ? 0 : 1);
  }
  int status;
  assert_int_equal(read(ready[0], &c, 1), 1);
  aci_set *s;
  assert_ok(aci_set_open(".", 0, &s, &e), e); /* sweeps: the other set's files are no left-overs */
  put(s, "a", "mine");
  put(s, "c", "mine");
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  assert_ok(aci_set_commit(s, &e), e);
  aci_set_free(s);
  assert_string_equal(names(), "a b c");
  holds("a", "mine");
  holds("b", "new b");
  close(ready[0]);
  close(ready[1]);
}

/* Processes that replace the same files at once, by each way to put a note in place: no set is lost and none is mixed. */
static void at_once(void **state) {
  enum { N = 6 };
  ac_err e;
  for (int way = 0; way < 3; way++) {
    no_rename_new = way >= 1;
    no_links = way == 2;
    for (int i = 0; i < N; i++) {
      if (fork() != 0) continue;
      char text[2] = {(char)('0' + i)};
      for (int k = 0; k < 5; k++) {
        aci_set *s;
        if (aci_set_open(".", 0, &s, &e) != AC_OK) _exit(1);
        put(s, "a", text);
        put(s, "b", text);
        if (aci_set_commit(s, &e) != AC_OK) _exit(2);
        aci_set_free(s);
      }
      _exit(0);
    }
    for (int i = 0, status; i < N; i++) assert_true(wait(&status) > 0 && status == 0);
    char *a, *b;
    size_t n;
    assert_ok(aci_read_whole("a", 10, &a, &n, &e), e);
    assert_ok(aci_read_whole("b", 10, &b, &n, &e), e);
    assert_string_equal(a, b);
    free(a);
    free(b);
    assert_string_equal(names(), "a b");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(switches_at_once, begin, end),  cmocka_unit_test_setup_teardown(given_up, begin, end),
      cmocka_unit_test_setup_teardown(names_and_places, begin, end),  cmocka_unit_test_setup_teardown(damaged_notes, begin, end),
      cmocka_unit_test_setup_teardown(note_of_a_folder, begin, end),
      cmocka_unit_test_setup_teardown(notes_of_other_users, begin, end),
      cmocka_unit_test_setup_teardown(folder_of_another_user, begin, end),
      cmocka_unit_test_setup_teardown(names_of_users, begin, end),
      cmocka_unit_test_setup_teardown(removes_no_folder, begin, end),
      cmocka_unit_test_setup_teardown(files_of_other_users, begin, end),
      cmocka_unit_test_setup_teardown(killed_anywhere, begin, end),   cmocka_unit_test_setup_teardown(waits_for_the_living, begin, end),
      cmocka_unit_test_setup_teardown(at_once, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
