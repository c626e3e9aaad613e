/* Files, read whole and written atomically. Called by safetensors, token files and the checkpoint
 * code. */
#include "file/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base_impl.h"
#include "base/json.h"
#include "file/left_over.h"
#include "file/set.h"

static ac_status fail(ac_err *e, const char *path, const char *what) {
  char shown[ACI_PATH_SHOWN];
  return AC_FAIL(e, IO, "%s: %s", aci_path_shown(path, shown), what);
}

static ac_status no_memory(ac_err *e, const char *path) {
  char shown[ACI_PATH_SHOWN];
  return AC_FAIL(e, OOM, "%s: no memory", aci_path_shown(path, shown));
}

/* Large reads request the next part while they copy: the kernel's own readahead is too short to
 * keep a disk busy. */
ac_status aci_pread_all(int fd, const char *path, void *buf, size_t n, uint64_t offset, ac_err *e) {
  enum { LARGE = 1 << 20, PIECE = 4 << 20, AHEAD = 16 << 20 };
  char *p = buf, shown[ACI_PATH_SHOWN];
  const bool large = n >= LARGE;
  uint64_t asked = offset; /* up to here */
  while (n > 0) {
    if (large && asked < offset + AHEAD) {
      posix_fadvise(fd, (off_t)asked, (off_t)(offset + PIECE + AHEAD - asked), POSIX_FADV_WILLNEED);
      asked = offset + PIECE + AHEAD;
    }
    const ssize_t r = pread(fd, p, n > PIECE ? PIECE : n, (off_t)offset);
    if (r < 0 && errno == EINTR) continue;
    if (r < 0) return aci_io_error(e, path, "cannot read", errno);
    if (r == 0)
      return AC_FAIL(
          e, IO, "%s: the file ends at byte %llu, %zu bytes too early: it was cut while we read it",
          aci_path_shown(path, shown), (unsigned long long)offset, n);
    p += r;
    n -= (size_t)r;
    offset += (uint64_t)r;
  }
  return AC_OK;
}

ac_status aci_pwrite_all(int fd, const char *path, const void *p, size_t n, uint64_t offset,
                         ac_err *e) {
  const char *c = p;
  while (n > 0) {
    const ssize_t w = pwrite(fd, c, n > (size_t)1 << 30 ? (size_t)1 << 30 : n, (off_t)offset);
    if (w < 0 && errno == EINTR) continue;
    if (w <= 0) return aci_io_error(e, path, "cannot write", w < 0 ? errno : EIO);
    c += w;
    n -= (size_t)w;
    offset += (uint64_t)w;
  }
  return AC_OK;
}

ac_status aci_reserve(int fd, const char *path, uint64_t bytes, bool keep_size, ac_err *e) {
  int rc = 0;
  if (bytes == 0) return AC_OK;
  ACI_AGAIN(rc, fallocate(fd, keep_size ? FALLOC_FL_KEEP_SIZE : 0, 0, (off_t)bytes));
  if (rc == 0) return AC_OK;
  const int err = errno;
  char shown[ACI_PATH_SHOWN], need[24], have[24];
  struct statvfs v;
  /* a file system that cannot say no */
  if (err == EOPNOTSUPP || err == ENOSYS || err == EINVAL) return AC_OK;
  if (err != ENOSPC && err != EFBIG && err != EDQUOT)
    return aci_io_error(e, path, "cannot reserve its space", err);
  const bool known = fstatvfs(fd, &v) == 0;
  return AC_FAIL(e, IO, "%s: %llu bytes do not fit: %s (%s needed%s%s)",
                 aci_path_shown(path, shown), (unsigned long long)bytes, strerror(err),
                 aci_bytes_text(need, sizeof need, bytes), known ? ", free: " : "",
                 known ? aci_bytes_text(have, sizeof have, (uint64_t)v.f_bavail * v.f_frsize) : "");
}

/* A new file next to path, with the permissions of the umask. Reading the umask to apply it by
 * chmod would change it for a moment under other threads. */
static ac_status create_beside(aci_atomic_file *f, unsigned mode, ac_err *e) {
  const char *slash = strrchr(f->path, '/');
  int dir = slash == NULL ? 0 : (int)(slash - f->path) + 1;
  const char *base = f->path + dir;
  size_t n = strlen(base) > ACI_TEMP_BASE ? ACI_TEMP_BASE : strlen(base),
         room = (size_t)dir + n + 32;
  char id[ACI_TEMP_ID], *tmp = malloc(room);
  if (tmp == NULL) return no_memory(e, f->path);
  aci_temp_sweep_files(f->path, strcmp(base, ACI_SET_NOTE) == 0); /* sets are large and rare */
  for (int tries = 0; f->fd < 0; tries++) {
    aci_temp_id(id);
    snprintf(tmp, room, "%.*s%.*s.tmp-%s", dir, f->path, (int)n, base, id);
    f->fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (f->fd >= 0 && !aci_temp_hold(f->fd, tmp)) {
      close(f->fd);
      f->fd = -1;
      continue;
    }
    if (f->fd >= 0 || (errno == EINTR && tries < 100) || (errno == EEXIST && tries < 100)) continue;
    ac_status st = aci_io_error(e, f->path, "cannot create a temporary file next to it", errno);
    free(tmp);
    return st;
  }
  f->tmp = tmp;
  return AC_OK;
}

/* Whether we may write to the target of this link. Not if another user put it into a sticky folder
 * such as /tmp: the kernel follows no such link (fs.protected_symlinks), but realpath reads it. */
static bool may_follow(const char *path, uid_t maker) {
  struct stat there;
  char *folder = strdup(path), *slash = folder == NULL ? NULL : strrchr(folder, '/');
  if (folder == NULL) return false;
  if (slash != NULL) slash[slash == folder] = 0; /* "/name" lies in "/" */
  const bool known = stat(slash == NULL ? "." : folder, &there) == 0;
  free(folder);
  return known && (!(there.st_mode & S_ISVTX) || maker == geteuid() || maker == there.st_uid);
}

/* Path of the file to replace: the end of a chain of links that leads somewhere. NULL: errno. */
static char *resolve(const char *path) {
  struct stat sb;
  if (lstat(path, &sb) == 0 && S_ISLNK(sb.st_mode)) {
    if (!may_follow(path, sb.st_uid)) {
      errno = EACCES;
      return NULL;
    }
    char *end = realpath(path, NULL);
    if (end != NULL || errno == ENOMEM) return end;
  }
  return strdup(path);
}

ac_status aci_atomic_inherit(aci_atomic_file *f, const char *path, const struct stat *was,
                             unsigned mode, ac_err *e) {
  unsigned kept = was != NULL ? was->st_mode & 0777 : 0;
  if (was != NULL && (was->st_uid != geteuid() || was->st_gid != getegid())) {
    if (fchown(f->fd, was->st_uid, was->st_gid) != 0) {
      ac_log_write(AC_LOG_DEBUG, "io", "%s: the owner could not be kept", path);
      /* its group's rights are not ours */
      if (was->st_gid != getegid() && fchown(f->fd, (uid_t)-1, was->st_gid) != 0)
        kept &= 0707 | (kept & 07) << 3;
    }
  }
  if (was == NULL && mode == 0) return AC_OK;
  if (fchmod(f->fd, mode != 0 ? mode : kept) == 0) return AC_OK;
  return aci_io_error(
      e, path, mode != 0 ? "cannot set its permissions" : "cannot keep its permissions", errno);
}

ac_status aci_atomic_refuse(const char *path, const struct stat *was, ac_err *e) {
  if (S_ISREG(was->st_mode)) return AC_OK;
  return fail(e, path,
              S_ISDIR(was->st_mode) ? "is a folder and cannot be replaced"
                                    : "is not a regular file and cannot be replaced");
}

ac_status aci_atomic_open(aci_atomic_file *f, const char *path, uint64_t expected_bytes,
                          ac_err *e) {
  return aci_atomic_open_as(f, path, 0, expected_bytes, e);
}

ac_status aci_atomic_open_as(aci_atomic_file *f, const char *path, unsigned mode,
                             uint64_t expected_bytes, ac_err *e) {
  struct stat sb;
  ac_status st;
  *f = (aci_atomic_file){.fd = -1};
  if (path[0] == 0) return aci_io_error(e, "the empty path", "cannot create", ENOENT);
  f->path = resolve(path);
  if (f->path == NULL && errno == EACCES)
    return aci_io_error(e, path, "another user's link in a shared folder is not followed", EACCES);
  if (f->path == NULL) return no_memory(e, path);
  const bool exists = stat(f->path, &sb) == 0;
  if (exists) AC_GOTO(fail, st, aci_atomic_refuse(path, &sb, e));
  AC_GOTO(fail, st, aci_set_recover_beside(f->path, e));
  /* one that takes over permissions is private until it has them: who opens it before that could
   * read all that comes */
  AC_GOTO(fail, st, create_beside(f, mode != 0 ? mode : exists ? 0600 : 0666, e));
  AC_GOTO(fail, st, aci_atomic_inherit(f, path, exists ? &sb : NULL, mode, e));
  AC_GOTO(fail, st, aci_reserve(f->fd, path, expected_bytes, true, e));
  return AC_OK;
fail:
  aci_atomic_abort(f);
  return st;
}

ac_status aci_atomic_write(aci_atomic_file *f, const void *p, size_t n, ac_err *e) {
  const char *c = p;
  while (n > 0) {
    ssize_t w = write(f->fd, c, n > (size_t)1 << 30 ? (size_t)1 << 30 : n);
    if (w < 0 && errno == EINTR) continue;
    if (w <= 0) return aci_io_error(e, f->path, "cannot write", w < 0 ? errno : EIO);
    c += w;
    n -= (size_t)w;
  }
  return AC_OK;
}

ac_status aci_sync_folder(const char *folder, ac_err *e) {
  int fd, rc, err = 0;
  ACI_AGAIN(fd, open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  /* for want of ours, not of the folder's */
  if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
    return aci_io_error(e, folder, "the folder cannot be synced to disk", errno);
  if (fd < 0) return AC_OK;
  ACI_AGAIN(rc, fsync(fd));
  if (rc != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT)) err = errno;
  close(fd);
  return err == 0 ? AC_OK : aci_io_error(e, folder, "the folder cannot be synced to disk", err);
}

ac_status aci_sync_folder_of(const char *path, ac_err *e) {
  char *dir = strdup(path);
  if (dir == NULL) return no_memory(e, path);
  char *slash = strrchr(dir, '/');
  if (slash != NULL) slash[slash == dir] = 0; /* "/name" lies in "/" */
  const ac_status st = aci_sync_folder(slash == NULL ? "." : dir, e);
  free(dir);
  return st;
}

ac_status aci_read_whole(const char *path, uint64_t most, char **out, size_t *bytes, ac_err *e) {
  int fd;
  uint64_t n;
  char shown[ACI_PATH_SHOWN], *text = NULL;
  *out = NULL;
  AC_TRY(aci_open_read(path, &fd, &n, e));
  ac_status st = AC_OK;
  if (n > most)
    st = AC_FAIL(e, IO, "%s: %llu bytes, more than the %llu that such a file may have",
                 aci_path_shown(path, shown), (unsigned long long)n, (unsigned long long)most);
  else if ((text = malloc((size_t)n + 1)) == NULL) st = no_memory(e, path);
  else st = aci_pread_all(fd, path, text, (size_t)n, 0, e);
  close(fd);
  if (st != AC_OK) {
    free(text);
    return st;
  }
  text[n] = 0;
  *out = text;
  *bytes = (size_t)n;
  return AC_OK;
}

int aci_rename_as(const char *from, const char *to, unsigned flags) {
  return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
}

/* If the file system has neither: all of our processes that do this in one folder take turns. */
static int rename_locked(const char *from, const char *to) {
  struct stat sb;
  int rc = -1, fd, turn;
  const char *slash = strrchr(to, '/');
  char *folder = slash == NULL ? strdup(".") : strndup(to, (size_t)(slash - to) + 1);
  if (folder == NULL) return -1;
  ACI_AGAIN(fd, open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  free(folder);
  /* one that does not work leaves the look below */
  if (fd >= 0) ACI_AGAIN(turn, flock(fd, LOCK_EX));
  if (lstat(to, &sb) == 0) errno = EEXIST;
  else if (errno == ENOENT) ACI_AGAIN(rc, rename(from, to));
  const int err = errno;
  if (fd >= 0) close(fd);
  errno = err;
  return rc;
}

int aci_rename_new(const char *from, const char *to) {
  int rc;
  ACI_AGAIN(rc, aci_rename_as(from, to, ACI_RENAME_NEW));
  if (rc == 0 || (errno != EINVAL && errno != ENOSYS)) return rc;
  ACI_AGAIN(rc, link(from, to));
  if (rc == 0) ACI_AGAIN(rc, unlink(from));
  else if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL ||
           errno == EMLINK)
    return rename_locked(from, to);
  return rc;
}

ac_status aci_make_folders(const char *path, ac_err *e) {
  struct stat sb;
  int err = ENOENT;
  ac_status st = AC_OK;
  const size_t n = strlen(path);
  char *part = strdup(path);
  if (part == NULL) return no_memory(e, path);
  for (size_t i = 1; i <= n && st == AC_OK; i++) {
    if (part[i] != '/' && part[i] != 0) continue;
    const char was = part[i];
    part[i] = 0;
    err = mkdir(part, 0777) == 0 ? 0 : errno;
    const bool absent = err != 0 && stat(part, &sb) != 0;
    if (err == 0) st = aci_sync_folder_of(part, e);
    part[i] = was;
    if (absent) break; /* those below it would only report that it is missing */
  }
  free(part);
  if (st != AC_OK || (n > 0 && stat(path, &sb) == 0 && S_ISDIR(sb.st_mode))) return st;
  return aci_io_error(e, path, "cannot make the folder", err != 0 ? err : ENOENT);
}

ac_status aci_atomic_commit(aci_atomic_file *f, ac_err *e) {
  ac_status st = AC_OK;
  int rc;
  ACI_AGAIN(rc, fsync(f->fd));
  if (rc != 0) st = aci_io_error(e, f->path, "cannot sync it to disk", errno);
  /* keeps the lock until the name is the target's */
  const int held = f->set == NULL ? fcntl(f->fd, F_DUPFD_CLOEXEC, 0) : -1;
  const int err = close(f->fd) != 0 && errno != EINTR ? errno : 0;
  f->fd = -1;
  if (st == AC_OK && err != 0) st = aci_io_error(e, f->path, "cannot close", err);
  if (st == AC_OK && f->set != NULL) {
    aci_set_written(f);
    return AC_OK;
  }
  if (st == AC_OK) ACI_AGAIN(rc, rename(f->tmp, f->path));
  if (st == AC_OK && rc != 0) st = aci_io_error(e, f->path, "cannot replace it", errno);
  if (held >= 0) close(held);
  if (st == AC_OK) {
    free(f->tmp);
    f->tmp = NULL;
    st = aci_sync_folder_of(f->path, e);
  }
  aci_atomic_abort(f);
  return st;
}

void aci_atomic_abort(aci_atomic_file *f) {
  if (f->fd >= 0) close(f->fd);
  if (f->tmp != NULL) unlink(f->tmp);
  if (f->set != NULL) aci_set_given_up(f);
  free(f->tmp);
  free(f->path);
  *f = (aci_atomic_file){.fd = -1};
}
