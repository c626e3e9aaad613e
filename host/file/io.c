/* Files, read whole and written atomically. Called by safetensors, token files and the checkpoint code. */
#include "file/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/base_impl.h"
#include "base/json.h"
#include "file/left_over.h"

const char *aci_path_shown(const char *path, char buf[ACI_PATH_SHOWN]) {
  size_t n = strlen(path);
  if (n <= 200) return path;
  const char *tail = path + n - 200;
  while (((unsigned char)*tail & 0xC0) == 0x80) tail++; /* no half characters */
  snprintf(buf, ACI_PATH_SHOWN, "...%s", tail);
  return buf;
}

ac_status aci_io_error(ac_err *e, const char *path, const char *doing, int err) {
  char shown[ACI_PATH_SHOWN];
  path = aci_path_shown(path, shown);
  if (err == ENOENT) return AC_FAIL(e, NOT_FOUND, "%s: %s: %s", path, doing, strerror(err));
  return AC_FAIL(e, IO, "%s: %s: %s", path, doing, strerror(err));
}

static ac_status fail(ac_err *e, const char *path, const char *what) {
  char shown[ACI_PATH_SHOWN];
  return AC_FAIL(e, IO, "%s: %s", aci_path_shown(path, shown), what);
}

static ac_status no_memory(ac_err *e, const char *path) {
  char shown[ACI_PATH_SHOWN];
  return AC_FAIL(e, OOM, "%s: no memory", aci_path_shown(path, shown));
}

ac_status aci_open_read(const char *path, int *out, uint64_t *bytes, ac_err *e) {
  struct stat sb;
  *out = -1;
  int fd;
  ACI_AGAIN(fd, open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (fd < 0) return aci_io_error(e, path, "cannot open", errno);
  if (fstat(fd, &sb) != 0) {
    ac_status st = aci_io_error(e, path, "cannot open", errno);
    close(fd);
    return st;
  }
  if (!S_ISREG(sb.st_mode)) {
    close(fd);
    return fail(e, path, S_ISDIR(sb.st_mode) ? "is a folder, not a file" : "is no regular file");
  }
  *bytes = (uint64_t)sb.st_size;
  *out = fd;
  return AC_OK;
}

/* Large reads ask for what comes next while they copy: the kernel's own readahead is too short to keep a disk busy. */
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
      return AC_FAIL(e, IO,
                     "%s: the file ends at byte %llu, %zu bytes too early: it was cut while we read it",
                     aci_path_shown(path, shown), (unsigned long long)offset, n);
    p += r;
    n -= (size_t)r;
    offset += (uint64_t)r;
  }
  return AC_OK;
}

ac_status aci_pwrite_all(int fd, const char *path, const void *p, size_t n, uint64_t offset, ac_err *e) {
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
  if (err == EOPNOTSUPP || err == ENOSYS || err == EINVAL) return AC_OK; /* a file system that cannot say no */
  if (err != ENOSPC && err != EFBIG && err != EDQUOT) return aci_io_error(e, path, "cannot reserve its space", err);
  const bool known = fstatvfs(fd, &v) == 0;
  return AC_FAIL(e, IO, "%s: %llu bytes do not fit: %s (%s needed%s%s)", aci_path_shown(path, shown), (unsigned long long)bytes,
                 strerror(err), aci_bytes_text(need, sizeof need, bytes),
                 known ? ", free: " : "", known ? aci_bytes_text(have, sizeof have, (uint64_t)v.f_bavail * v.f_frsize) : "");
}

/* A new file beside path, with the permissions of the umask: reading the umask to apply it by chmod would
 * change it for a moment under other threads. */
static ac_status create_beside(aci_atomic_file *f, ac_err *e) {
  const char *slash = strrchr(f->path, '/');
  int dir = slash == NULL ? 0 : (int)(slash - f->path) + 1;
  const char *base = f->path + dir;
  size_t n = strlen(base) > ACI_TEMP_BASE ? ACI_TEMP_BASE : strlen(base), room = (size_t)dir + n + 32;
  char id[ACI_TEMP_ID], *tmp = malloc(room);
  if (tmp == NULL) return no_memory(e, f->path);
  aci_temp_sweep_files(f->path);
  for (int tries = 0; f->fd < 0; tries++) {
    aci_temp_id(id);
    snprintf(tmp, room, "%.*s%.*s.tmp-%s", dir, f->path, (int)n, base, id);
    f->fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (f->fd >= 0 && !aci_temp_hold(f->fd, tmp)) {
      close(f->fd);
      f->fd = -1;
      continue;
    }
    if (f->fd >= 0 || (errno == EINTR && tries < 100) || (errno == EEXIST && tries < 100)) continue;
    ac_status st = aci_io_error(e, f->path, "cannot create a temporary file beside it", errno);
    free(tmp);
    return st;
  }
  f->tmp = tmp;
  return AC_OK;
}

/* Path of the file to replace: the end of a chain of links that leads somewhere. */
static char *resolve(const char *path) {
  struct stat sb;
  if (lstat(path, &sb) == 0 && S_ISLNK(sb.st_mode)) {
    char *end = realpath(path, NULL);
    if (end != NULL || errno == ENOMEM) return end;
  }
  return strdup(path);
}

ac_status aci_atomic_open(aci_atomic_file *f, const char *path, uint64_t expected_bytes, ac_err *e) {
  struct stat sb;
  ac_status st;
  *f = (aci_atomic_file){.fd = -1};
  if (path[0] == 0) return aci_io_error(e, "the empty path", "cannot create", ENOENT);
  f->path = resolve(path);
  if (f->path == NULL) return no_memory(e, path);
  bool exists = stat(f->path, &sb) == 0;
  if (exists && !S_ISREG(sb.st_mode)) {
    st = fail(e, path,
              S_ISDIR(sb.st_mode) ? "is a folder and cannot be replaced"
                                  : "is no regular file and cannot be replaced");
    goto fail;
  }
  AC_GOTO(fail, st, create_beside(f, e));
  if (exists) {
    if (sb.st_uid != geteuid() || sb.st_gid != getegid()) {
      if (fchown(f->fd, sb.st_uid, sb.st_gid) != 0)
        ac_log_write(AC_LOG_DEBUG, "io", "%s: the owner could not be kept", path);
    }
    if (fchmod(f->fd, sb.st_mode & 0777) != 0) {
      st = aci_io_error(e, path, "cannot keep its permissions", errno);
      goto fail;
    }
  }
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
  if (fd < 0) return AC_OK;
  ACI_AGAIN(rc, fsync(fd));
  if (rc != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT)) err = errno;
  close(fd);
  return err == 0 ? AC_OK : aci_io_error(e, folder, "the folder cannot be brought to disk", err);
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
    st = AC_FAIL(e, IO, "%s: %llu bytes, more than the %llu that such a file may have", aci_path_shown(path, shown),
                 (unsigned long long)n, (unsigned long long)most);
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

ac_status aci_atomic_commit(aci_atomic_file *f, ac_err *e) {
  ac_status st = AC_OK;
  int rc;
  ACI_AGAIN(rc, fsync(f->fd));
  if (rc != 0) st = aci_io_error(e, f->path, "cannot bring it to disk", errno);
  const int held = fcntl(f->fd, F_DUPFD_CLOEXEC, 0); /* keeps the lock until the name is the target's */
  const int err = close(f->fd) != 0 && errno != EINTR ? errno : 0;
  f->fd = -1;
  if (st == AC_OK && err != 0) st = aci_io_error(e, f->path, "cannot close", err);
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
  free(f->tmp);
  free(f->path);
  *f = (aci_atomic_file){.fd = -1};
}
