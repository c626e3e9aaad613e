/* The writer of a temporary folder, identified by a file that its process keeps locked, and the
 * handling of folders whose writers have ended. Called by save.c and commit.c. scan.c asks for
 * names and removes folders.
 *
 * The file holds process id, start time, boot id, host name and whether it could be locked. On this
 * machine the lock decides if there are locks, otherwise whether the process lives. Nothing is
 * known about another machine on a shared file system: its files count as left over after a day
 * without a change. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/ckpt_impl.h"
#include "file/io.h"

enum { FRESH_SECONDS = 60, FOREIGN_SECONDS = 24 * 3600, LINE = 256 };

void aci_ckpt_new_id(char id[ACI_CKPT_ID]) {
  snprintf(id, ACI_CKPT_ID, "%016llx", (unsigned long long)aci_hash_key());
}

size_t aci_ckpt_base_of(const char *name, const char *mark) {
  const size_t n = strlen(name), k = strlen(mark), digits = ACI_CKPT_ID - 1;
  if (n <= k + digits || memcmp(name + n - digits - k, mark, k) != 0) return 0;
  return strspn(name + n - digits, "0123456789abcdef") == digits ? n - digits - k : 0;
}

char *aci_ckpt_join(const char *folder, const char *name) {
  const size_t n = strlen(folder), k = strlen(name);
  char *p = malloc(n + k + 2);
  if (p == NULL) return NULL;
  memcpy(p, folder, n);
  p[n] = '/';
  memcpy(p + n + 1, name, k + 1);
  return p;
}

/* ---- who ---- */

/* The first line of a small file, without its end. "?" when it cannot be read. */
static void line_of(const char *path, char *buf, size_t n) {
  int fd;
  ssize_t got = -1;
  ACI_AGAIN(fd, open(path, O_RDONLY | O_CLOEXEC));
  if (fd >= 0) {
    ACI_AGAIN(got, read(fd, buf, n - 1));
    close(fd);
  }
  buf[got > 0 ? got : 0] = 0;
  buf[strcspn(buf, "\n")] = 0;
  if (buf[0] == 0) snprintf(buf, n, "?");
}

/* When a process began, in ticks since the boot, 0: it is not there. */
static unsigned long long began(long pid) {
  char path[64], buf[1024];
  snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  line_of(path, buf, sizeof buf);
  const char *s = strrchr(buf, ')'); /* the name before may hold anything */
  unsigned long long t = 0;
  if (s == NULL) return 0;
  for (int field = 2; field < 22 && s != NULL; field++) s = strchr(s + 1, ' ');
  return s != NULL && sscanf(s, " %llu", &t) == 1 ? t : 0;
}

static void describe(char line[LINE], bool locked) {
  char boot[64], host[100] = "?";
  line_of("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
  if (gethostname(host, sizeof host) != 0) snprintf(host, sizeof host, "?");
  host[sizeof host - 1] = 0;
  snprintf(line, LINE, "%ld %llu %s %s %d\n", (long)getpid(), began((long)getpid()), boot, host,
           locked);
}

/* Is the process of this line alive, when nobody holds the lock? age: seconds since the file
 * changed. */
static bool line_lives(const char *line, double age) {
  long pid;
  int locked;
  unsigned long long start;
  char boot[64], host[100], boot_here[64], host_here[100] = "?";
  /* being made */
  if (sscanf(line, "%ld %llu %63s %99s %d", &pid, &start, boot, host, &locked) != 5)
    return age < FRESH_SECONDS;
  line_of("/proc/sys/kernel/random/boot_id", boot_here, sizeof boot_here);
  gethostname(host_here, sizeof host_here - 1);
  if (strcmp(boot, boot_here) == 0) return !locked && began(pid) == start && start != 0;
  return strcmp(host, host_here) != 0 && age < FOREIGN_SECONDS;
}

static char *owner_path(const char *folder, int part) {
  char name[32];
  snprintf(name, sizeof name, "owner-%d.lock", part);
  return aci_ckpt_join(folder, name);
}

ac_status aci_owner_take(const char *folder, int part, int *out, ac_err *e) {
  char line[LINE], *path = owner_path(folder, part);
  int fd;
  ac_status st = AC_OK;
  *out = -1;
  if (path == NULL) return AC_FAIL(e, OOM, "no memory for a checkpoint");
  ACI_AGAIN(fd, open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (fd < 0) {
    st = aci_io_error(e, path, "cannot create", errno);
  } else {
    /* nobody else holds it: it fails only without support for locks */
    describe(line, flock(fd, LOCK_EX | LOCK_NB) == 0);
    st = aci_pwrite_all(fd, path, line, strlen(line), 0, e);
    if (st == AC_OK) *out = fd;
    else close(fd);
  }
  free(path);
  return st;
}

static aci_owner_state look(const char *path) {
  char line[LINE];
  struct stat sb;
  int fd;
  ACI_AGAIN(fd, open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd < 0) return errno == ENOENT ? ACI_OWNER_NONE : ACI_OWNER_LIVE; /* not ours to judge */
  aci_owner_state is = ACI_OWNER_LIVE;
  if (fstat(fd, &sb) == 0 && S_ISREG(sb.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0) {
    const ssize_t n = pread(fd, line, sizeof line - 1, 0);
    line[n > 0 ? n : 0] = 0;
    is = line_lives(line, difftime(time(NULL), sb.st_mtime)) ? ACI_OWNER_LIVE : ACI_OWNER_DEAD;
  }
  close(fd);
  return is;
}

aci_owner_state aci_owner_look(const char *folder, int part) {
  char *path = owner_path(folder, part);
  const aci_owner_state is = path == NULL ? ACI_OWNER_LIVE : look(path);
  free(path);
  return is;
}

/* ---- removing ---- */

static int remove_at(int at, const char *name, int depth);

/* All entries of an open folder but MANIFEST.json. 0 or the first errno. */
static int remove_entries(int fd, int depth) {
  int err = 0;
  DIR *d = fdopendir(fd); /* closes fd */
  if (d == NULL) {
    err = errno;
    close(fd);
    return err;
  }
  for (struct dirent *x; (x = readdir(d)) != NULL;) {
    if (strcmp(x->d_name, ".") == 0 || strcmp(x->d_name, "..") == 0) continue;
    if (depth == 0 && strcmp(x->d_name, ACI_CKPT_MANIFEST) == 0) continue;
    const int rc = remove_at(dirfd(d), x->d_name, depth + 1);
    if (err == 0) err = rc;
  }
  closedir(d);
  return err;
}

static int remove_at(int at, const char *name, int depth) {
  int rc;
  ACI_AGAIN(rc, unlinkat(at, name, 0));
  if (rc == 0 || errno == ENOENT) return 0;
  if (errno != EISDIR && errno != EPERM) return errno;
  if (depth > 64) return ELOOP;
  int fd;
  ACI_AGAIN(fd, openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (fd < 0) return errno;
  const int err = remove_entries(fd, depth);
  ACI_AGAIN(rc, unlinkat(at, name, AT_REMOVEDIR));
  if (rc == 0 || errno == ENOENT) return 0;
  return err != 0 ? err : errno;
}

ac_status aci_ckpt_remove_tree(const char *path, ac_err *e) {
  int fd, rc;
  ACI_AGAIN(fd, open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (fd < 0) return errno == ENOENT ? AC_OK : aci_io_error(e, path, "cannot remove", errno);
  const int keep = fcntl(fd, F_DUPFD_CLOEXEC, 0), err = remove_entries(fd, 0);
  if (keep >= 0) {
    unlinkat(keep, ACI_CKPT_MANIFEST, 0);
    close(keep);
  }
  ACI_AGAIN(rc, rmdir(path));
  if (rc == 0 || errno == ENOENT) return AC_OK;
  return aci_io_error(e, path, "cannot remove", err != 0 ? err : errno);
}

ac_status aci_ckpt_discard(const char *path, ac_err *e) {
  char id[ACI_CKPT_ID];
  int rc;
  size_t n = strlen(path);
  if (aci_ckpt_base_of(path, ".tmp-") > 0) return aci_ckpt_remove_tree(path, e);
  char *gone = malloc(n + 32);
  if (gone == NULL) return AC_FAIL(e, OOM, "no memory to remove a checkpoint");
  if (aci_ckpt_base_of(path, ".old-") > 0) n = aci_ckpt_base_of(path, ".old-");
  aci_ckpt_new_id(id);
  snprintf(gone, n + 32, "%.*s.tmp-%s", (int)n, path, id);
  ac_status st = AC_OK;
  ACI_AGAIN(rc, rename(path, gone));
  if (rc != 0) st = aci_io_error(e, path, "cannot remove", errno);
  if (st == AC_OK) st = aci_sync_folder_of(path, e); /* before any file of it goes */
  if (st == AC_OK) st = aci_ckpt_remove_tree(gone, e);
  free(gone);
  return st;
}

/* May this temporary folder go? One of ours, none of whose writers lives. */
static bool left_over(const char *path) {
  struct stat sb;
  bool ours = false, empty = true, lives = false;
  if (lstat(path, &sb) != 0 || !S_ISDIR(sb.st_mode)) return false;
  DIR *d = opendir(path);
  if (d == NULL) return false;
  for (struct dirent *x; (x = readdir(d)) != NULL && !lives;) {
    if (strcmp(x->d_name, ".") == 0 || strcmp(x->d_name, "..") == 0) continue;
    empty = false;
    if (strcmp(x->d_name, ACI_CKPT_MANIFEST) == 0) ours = true;
    if (strncmp(x->d_name, "owner-", 6) != 0) continue;
    ours = true;
    char *file = aci_ckpt_join(path, x->d_name);
    lives = file == NULL || look(file) == ACI_OWNER_LIVE;
    free(file);
  }
  closedir(d);
  /* one that was just made has no owner yet */
  if (empty) ours = difftime(time(NULL), sb.st_mtime) > FRESH_SECONDS;
  return ours && !lives;
}

/* PATH.old-<id> goes when PATH is a whole checkpoint again. */
static bool replaced(const char *parent, const char *name, size_t base) {
  char *path = aci_ckpt_join(parent, name);
  ac_ckpt *c = NULL;
  if (path != NULL) {
    path[strlen(path) - strlen(name) + base] = 0;
    if (ac_ckpt_open(path, &c, NULL) != AC_OK) c = NULL;
  }
  const bool yes = c != NULL;
  ac_ckpt_close(c);
  free(path);
  return yes;
}

void aci_ckpt_sweep(const char *parent, const char *keep) {
  DIR *d = opendir(parent);
  if (d == NULL) return;
  for (struct dirent *x; (x = readdir(d)) != NULL;) {
    const size_t tmp = aci_ckpt_base_of(x->d_name, ".tmp-"),
                 old = aci_ckpt_base_of(x->d_name, ".old-");
    if (tmp == 0 && old == 0) continue;
    char *path = aci_ckpt_join(parent, x->d_name);
    if (path != NULL && (keep == NULL || strcmp(path, keep) != 0) && left_over(path) &&
        (tmp > 0 || replaced(parent, x->d_name, old)))
      aci_ckpt_discard(path, NULL);
    free(path);
  }
  closedir(d);
}
