/* A file that only ever grows by whole records. Used by the sinks. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

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
  const int why = w < 0 ? errno : ENOSPC; /* a short write: what stopped it is asked for no more */
  if (w > 0 && ftruncate(a->fd, (off_t)a->end) != 0) a->torn = true;
  return AC_FAIL(e, IO, "cannot write %s: %s", path, strerror(why));
}
