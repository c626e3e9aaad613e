/* Opening of regular files, see open_read.h. Called by all readers of files. */
#include "base/open_read.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/visible.h"

const char *aci_path_shown(const char *path, char buf[ACI_PATH_SHOWN]) {
  size_t n = strlen(path), at = 0;
  const bool plain = aci_is_visible(path, n, false);
  if (n <= 200 && plain) return path;
  const char *tail = path;
  if (n > 200) {
    tail += n - 200;
    while (((unsigned char)*tail & 0xC0) == 0x80) tail++; /* no half characters */
    memcpy(buf, "...", at = 3);
  }
  aci_visible(buf + at, ACI_PATH_SHOWN - at, tail, strlen(tail), false, NULL);
  return buf;
}

ac_status aci_io_error(ac_err *e, const char *path, const char *doing, int err) {
  char shown[ACI_PATH_SHOWN];
  path = aci_path_shown(path, shown);
  if (err == ENOENT) return AC_FAIL(e, NOT_FOUND, "%s: %s: %s", path, doing, strerror(err));
  return AC_FAIL(e, IO, "%s: %s: %s", path, doing, strerror(err));
}

static const char *kind_of(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFDIR: return "is a folder, not a file";
    case S_IFIFO: return "is a pipe, not a regular file; write its contents to a file first";
    case S_IFSOCK: return "is a socket, not a regular file";
    default: return "is a device, not a regular file";
  }
}

ac_status aci_open_read(const char *path, int *out, uint64_t *bytes, ac_err *e) {
  struct stat sb;
  char shown[ACI_PATH_SHOWN];
  *out = -1;
  int fd;
  /* O_NONBLOCK: the other end of a pipe may never come, and a device may wait for its hardware */
  do fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  while (fd < 0 && errno == EINTR);
  if (fd < 0 && errno == ENXIO)
    return AC_FAIL(e, IO, "%s: %s", aci_path_shown(path, shown), kind_of(S_IFSOCK));
  if (fd < 0) return aci_io_error(e, path, "cannot open", errno);
  if (fstat(fd, &sb) != 0) {
    const ac_status st = aci_io_error(e, path, "cannot open", errno);
    close(fd);
    return st;
  }
  if (!S_ISREG(sb.st_mode)) {
    close(fd);
    return AC_FAIL(e, IO, "%s: %s", aci_path_shown(path, shown), kind_of(sb.st_mode));
  }
  const int flags = fcntl(fd, F_GETFL);
  if (flags >= 0) fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
  *bytes = (uint64_t)sb.st_size;
  *out = fd;
  return AC_OK;
}
