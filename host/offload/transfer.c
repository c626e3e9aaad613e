/* Bytes between memory and a file: whole pages bypass the page cache, several pieces under way by
 * io_uring. The rest, and pieces that the file system refuses, go by pread and pwrite. Runs in the
 * I/O thread (queue.c).
 *
 * Buffers are not registered with the ring: memory of pools would have to stay pinned, and be let
 * go before a pool unmaps it. Measured with pieces of 1 MiB it saves 20 to 30 ms of CPU a GB, 3 %
 * of a core, and moves no more bytes a second. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/base_impl.h"
#include "file/io.h"
#include "offload/offload.h"

enum { PAGE = ACI_OFFLOAD_PAGE, PIECE = 1 << 20 };

void aci_mover_init(aci_mover *m) {
  m->ring = NULL;
  m->no_direct = !aci_params_flag("ACCEL_DIRECT_IO", true);
  m->no_uring = !aci_params_flag("ACCEL_IO_URING", true);
}

void aci_mover_fini(aci_mover *m) {
  aci_uring_free(m->ring);
  m->ring = NULL;
}

static bool set_direct(aci_store *s, bool on) {
  if (s->direct == on) return true;
  const int flags = fcntl(s->fd, F_GETFL);
  if (flags < 0 || fcntl(s->fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) != 0) {
    if (on) s->no_direct = true;
    return false;
  }
  s->direct = on;
  return true;
}

static ac_status too_short(const aci_store *s, uint64_t at, size_t n, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  return AC_FAIL(
      e, IO,
      "%s: ends before byte %llu, though %zu bytes were to be read there: was it cut meanwhile?",
      aci_path_shown(s->path, shown), (unsigned long long)(at + n), n);
}

/* By plain calls. need: of n bytes to read, those that the file must have. */
static ac_status plain(aci_store *s, bool write, char *p, size_t n, size_t need, uint64_t at,
                       ac_err *e) {
  size_t done = 0;
  while (done < n) {
    const ssize_t r = write ? pwrite(s->fd, p + done, n - done, (off_t)(at + done))
                            : pread(s->fd, p + done, n - done, (off_t)(at + done));
    if (r < 0 && errno == EINTR) continue;
    if (r < 0 && errno == EINVAL && s->direct) { /* takes the flag and not the call */
      s->no_direct = true;
      if (set_direct(s, false)) continue;
    }
    if (r < 0) return aci_io_error(e, s->path, write ? "cannot write" : "cannot read", errno);
    if (r == 0 && write) return aci_io_error(e, s->path, "cannot write", EIO);
    if (r == 0) return done >= need ? AC_OK : too_short(s, at, n, e);
    done += (size_t)r;
    if (done >= need && !write) return AC_OK;
    if (done % PAGE != 0 && s->direct) set_direct(s, false); /* the rest may begin anywhere */
  }
  return AC_OK;
}

static bool is_temporary(int err) {
  return err == EINTR || err == EAGAIN || err == EINVAL || err == EOPNOTSUPP;
}

/* Takes one result. Plain calls complete the part of the piece that the ring did not do. *st keeps
 * the first failure. */
static void reap(aci_mover *m, aci_store *s, bool write, char *p, size_t n, size_t need,
                 uint64_t at, ac_status *st, ac_err *e, bool *lost) {
  uint64_t off;
  int32_t r;
  const int err = aci_uring_wait(m->ring, &off, &r);
  if (err != 0) {
    *lost = true;
    if (*st == AC_OK) *st = aci_io_error(e, s->path, "cannot wait for io_uring", err);
    return;
  }
  const size_t len = n - off < PIECE ? n - off : PIECE;
  if (*st != AC_OK || r == (int32_t)len || (!write && r >= 0 && off + (size_t)r >= need)) return;
  if (r < 0 && !is_temporary(-r)) {
    *st = aci_io_error(e, s->path, write ? "cannot write" : "cannot read", -r);
    return;
  }
  const size_t done = r > 0 ? (size_t)r / PAGE * PAGE : 0;
  *st = plain(s, write, p + off + done, len - done, need > off + done ? need - off - done : 0,
              at + off + done, e);
}

/* By the ring. n, at and p are at pages. */
static ac_status by_ring(aci_mover *m, aci_store *s, bool write, char *p, size_t n, size_t need,
                         uint64_t at, ac_err *e) {
  ac_status st = AC_OK;
  size_t next = 0;
  int under_way = 0;
  bool lost = false;
  while (st == AC_OK && next < n) {
    const size_t len = n - next < PIECE ? n - next : PIECE;
    const int err =
        aci_uring_begin(m->ring, write, s->fd, p + next, (uint32_t)len, at + next, next);
    if (err != 0) st = aci_io_error(e, s->path, "cannot submit a block to io_uring", err);
    else under_way++;
    next += len;
    if (under_way == ACI_URING_DEPTH) {
      reap(m, s, write, p, n, need, at, &st, e, &lost);
      under_way--;
    }
  }
  for (; under_way > 0 && !lost; under_way--) reap(m, s, write, p, n, need, at, &st, e, &lost);
  if (lost) m->no_uring = true;
  return st;
}

/* n bytes, all of them through the page cache. */
static ac_status buffered(aci_store *s, bool write, char *p, size_t n, uint64_t at, ac_err *e) {
  if (n == 0) return AC_OK;
  set_direct(s, false);
  return plain(s, write, p, n, n, at, e);
}

ac_status aci_mover_run(aci_mover *m, aci_store *s, bool write, void *memory, size_t n, uint64_t at,
                        bool slack, ac_err *e) {
  char *p = memory;
  const size_t lead = at % PAGE;
  if (n < ACI_OFFLOAD_LARGE || s->cached || (uintptr_t)p % PAGE != lead || m->no_direct ||
      s->no_direct || !set_direct(s, true))
    return buffered(s, write, p, n, at, e);
  /* whole pages from `from` to `to`, in bytes from at - lead. The parts before and after use the
   * page cache */
  const bool wide = slack && (lead == 0 || !write);
  const size_t end = lead + n, from = wide || lead == 0 ? 0 : PAGE,
               to = (end + (wide ? PAGE - 1 : 0)) / PAGE * PAGE;
  const size_t need = to < end ? to - from : end - from;
  if (m->ring == NULL && !m->no_uring) m->no_uring = (m->ring = aci_uring_new()) == NULL;
  p -= lead;
  at -= lead;
  AC_TRY((m->no_uring ? plain(s, write, p + from, to - from, need, at + from, e)
                      : by_ring(m, s, write, p + from, to - from, need, at + from, e)));
  if (from > lead) AC_TRY(buffered(s, write, p + lead, from - lead, at + lead, e));
  return to < end ? buffered(s, write, p + to, end - to, at + to, e) : AC_OK;
}
