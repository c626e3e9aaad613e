/* Traces in Chrome's format to which several ranks add: one JSON object whose events are the last
 * member, so that a rank that has the file's lock cuts its end off, adds its events and ends it
 * again. Called by bindings. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "accel/profile.h"
#include "file/io.h"

static const char END[] = "\n]}\n";
enum { END_BYTES = sizeof END - 1, START_BYTES = 1024 };

static ac_status failed(const char *path, const char *what, ac_err *e) {
  return AC_FAIL(e, IO, "%s: %s: %s", path, what, strerror(errno));
}

static bool write_all(int fd, const char *s, size_t n) {
  while (n > 0) {
    const ssize_t k = write(fd, s, n);
    if (k < 0 && errno == EINTR) continue;
    if (k < 0) return false;
    s += k;
    n -= (size_t)k;
  }
  return true;
}

/* Does the file hold a trace with this beginning, and our end? */
static bool continues(int fd, const char *start, size_t n, off_t size) {
  char have[START_BYTES], end[END_BYTES];
  if (size < (off_t)(n + END_BYTES) || n > sizeof have) return false;
  return pread(fd, have, n, 0) == (ssize_t)n && memcmp(have, start, n) == 0 &&
         pread(fd, end, END_BYTES, size - END_BYTES) == END_BYTES &&
         memcmp(end, END, END_BYTES) == 0;
}

static ac_status start_of(char *start, size_t room, const char *path, const char *head, size_t *n,
                          ac_err *e) {
  const int len =
      snprintf(start, room, "{%s%s\"traceEvents\": [\n", head, head[0] != 0 ? ", " : "");
  if (len < 0 || (size_t)len >= room)
    return AC_FAIL(e, INVALID, "%s: the head of a trace is too long", path);
  *n = (size_t)len;
  return AC_OK;
}

ac_status ac_trace_write(const char *path, const char *head, const char *text, size_t n,
                         ac_err *e) {
  char start[START_BYTES];
  size_t len = 0;
  aci_atomic_file f = {.fd = -1};
  AC_TRY(start_of(start, sizeof start, path, head, &len, e));
  ac_status st = aci_atomic_open(&f, path, len + n + END_BYTES, e);
  if (st == AC_OK) st = aci_atomic_write(&f, start, len, e);
  if (st == AC_OK) st = aci_atomic_write(&f, text, n, e);
  if (st == AC_OK) st = aci_atomic_write(&f, END, END_BYTES, e);
  if (st == AC_OK) st = aci_atomic_commit(&f, e);
  aci_atomic_abort(&f);
  return st;
}

/* Adds to the locked file. If the addition does not fit, the trace stays unchanged. */
static ac_status add(int fd, const char *path, const char *head, const char *text, size_t n,
                     ac_err *e) {
  char start[START_BYTES];
  struct stat sb;
  size_t len = 0;
  AC_TRY(start_of(start, sizeof start, path, head, &len, e));
  if (fstat(fd, &sb) != 0) return failed(path, "cannot be read", e);
  if (!continues(fd, start, len, sb.st_size)) return ac_trace_write(path, head, text, n, e);
  if (n == 0) return AC_OK;
  const off_t at = sb.st_size - END_BYTES;
  const bool first = at == (off_t)len;
  if (lseek(fd, at, SEEK_SET) >= 0 && (first || write_all(fd, ",\n", 2)) &&
      write_all(fd, text, n) && write_all(fd, END, END_BYTES))
    return AC_OK;
  const ac_status st = failed(path, "cannot be written", e);
  if (lseek(fd, at, SEEK_SET) < 0 || !write_all(fd, END, END_BYTES) ||
      ftruncate(fd, sb.st_size) != 0)
    ac_log_write(AC_LOG_WARN, "profile", "%s: the end of the trace is lost", path);
  return st;
}

static bool is_at(int fd, const char *path) {
  struct stat mine, there;
  return fstat(fd, &mine) == 0 && stat(path, &there) == 0 && mine.st_ino == there.st_ino &&
         mine.st_dev == there.st_dev;
}

ac_status ac_trace_add(const char *path, const char *head, const char *text, size_t n, ac_err *e) {
  for (;;) {
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return failed(path, "cannot be opened", e);
    int rc;
    do rc = flock(fd, LOCK_EX);
    while (rc != 0 && errno == EINTR);
    /* a file system without locks: ranks that end at the same moment may then lose the output of
     * one of them */
    const bool locked = rc == 0 || errno == ENOLCK || errno == ENOTSUP,
               there = locked && is_at(fd, path);
    ac_status st = AC_OK;
    if (!locked) st = failed(path, "cannot be locked", e);
    else if (there) st = add(fd, path, head, text, n, e);
    if (close(fd) != 0 && st == AC_OK) st = failed(path, "cannot be written", e);
    /* else another rank replaced the file meanwhile */
    if (!locked || there || st != AC_OK) return st;
  }
}
