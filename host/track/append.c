/* A file that only ever grows by whole records. Used by the sinks. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "file/io.h"
#include "track/track_impl.h"

ac_status aci_append_record(aci_append *a, const char *path, const void *p, size_t n, ac_err *e) {
  ssize_t w;
  if (a->torn) return AC_FAIL(e, IO, "%s: it ends within a record", path);
  do w = write(a->fd, p, n);
  while (w < 0 && errno == EINTR);
  if (w >= 0 && (size_t)w == n) {
    a->end += n;
    return AC_OK;
  }
  const int why = w < 0 ? errno : ENOSPC; /* a short write: retry to learn the reason */
  if (w > 0 && ftruncate(a->fd, (off_t)a->end) != 0) a->torn = true;
  return AC_FAIL(e, IO, "cannot write %s: %s", path, strerror(why));
}

void aci_append_close(aci_append *a, const char *path) {
  ac_err e;
  int rc;
  if (a->fd < 0) return;
  ACI_AGAIN(rc, fsync(a->fd));
  if (rc != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT))
    ac_log_write(AC_LOG_WARN, "track",
                 "%s: cannot sync it, so its end may be lost on a power failure: %s", path,
                 strerror(errno));
  else if (rc == 0 && aci_sync_folder_of(path, &e) != AC_OK)
    ac_log_write(AC_LOG_WARN, "track", "%s", e.msg);
  close(a->fd);
  a->fd = -1;
}
