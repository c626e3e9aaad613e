/* Traces in Chrome's format to which several ranks add: one JSON object whose events are the last member, so that a rank that has the file's
 * lock cuts its end off, adds its events and ends it again. Called by bindings. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "accel/profile.h"

static const char END[] = "\n]}\n";
enum { END_BYTES = sizeof END - 1 };

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
  char have[1024], end[END_BYTES];
  if (size < (off_t)(n + END_BYTES) || n > sizeof have) return false;
  return pread(fd, have, n, 0) == (ssize_t)n && memcmp(have, start, n) == 0 &&
         pread(fd, end, END_BYTES, size - END_BYTES) == END_BYTES && memcmp(end, END, END_BYTES) == 0;
}

static ac_status add(int fd, const char *path, const char *head, const char *text, size_t n, ac_err *e) {
  char start[1024];
  struct stat st;
  const int len = snprintf(start, sizeof start, "{%s%s\"traceEvents\": [\n", head, head[0] != 0 ? ", " : "");
  if (len < 0 || (size_t)len >= sizeof start) return AC_FAIL(e, INVALID, "%s: the head of a trace is too long", path);
  if (fstat(fd, &st) != 0) return failed(path, "cannot be read", e);
  if (continues(fd, start, (size_t)len, st.st_size)) {
    const off_t at = st.st_size - END_BYTES;
    const bool first = at == (off_t)len;
    if (n == 0) return AC_OK;
    if (lseek(fd, at, SEEK_SET) < 0 || (!first && !write_all(fd, ",\n", 2))) return failed(path, "cannot be written", e);
  } else {
    if (ftruncate(fd, 0) != 0 || lseek(fd, 0, SEEK_SET) < 0 || !write_all(fd, start, (size_t)len))
      return failed(path, "cannot be written", e);
  }
  if (!write_all(fd, text, n) || !write_all(fd, END, END_BYTES)) return failed(path, "cannot be written", e);
  return AC_OK;
}

ac_status ac_trace_add(const char *path, const char *head, const char *text, size_t n, ac_err *e) {
  const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return failed(path, "cannot be opened", e);
  int rc;
  do rc = flock(fd, LOCK_EX);
  while (rc != 0 && errno == EINTR);
  /* a file system without locks: ranks that end at the same moment may then lose what one of them wrote */
  ac_status st = rc == 0 || errno == ENOLCK || errno == ENOTSUP ? add(fd, path, head, text, n, e) : failed(path, "cannot be locked", e);
  if (close(fd) != 0 && st == AC_OK) st = failed(path, "cannot be written", e);
  return st;
}
