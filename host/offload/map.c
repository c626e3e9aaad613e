/* Bytes of read-only files, used in the page cache. A weight of a checkpoint is mapped instead of
 * copied, as long as the machine's memory has room for the whole file in addition to programs. See
 * offload.h. Called by resident.c and queue.c.
 *
 * A map has two dangers, which end a process by SIGBUS: a file that is cut, and a disk that fails
 * while a page is read.
 *
 *   A file is cut   While an op uses a map, the file has a read lease of ours: the system makes
 *                   whoever wants to write or cut it wait until the op is over (fcntl F_SETLEASE,
 *                   milliseconds, 45 seconds at most), and grants none while another process has it
 *                   open for writing. With the lease the length is looked at. Between uses nothing
 *                   reads the map.
 *   A disk fails    The I/O thread requests missing pages with MADV_POPULATE_READ, which returns an
 *                   error in cases that would kill a load from memory, before the map becomes
 *                   resident. Only pages that the system takes away while it is are read by an op.
 *
 * A map stays when its bytes are out: its pages belong to the page cache, which reclaims them when
 * memory is short.
 *
 * If one of these is not available (another user's file, a file system without leases, Linux before
 * 5.14), bytes are read into memory, from the page cache. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base_impl.h"
#include "offload/offload.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

enum { AHEAD = 1 << 20 }; /* read-ahead of one call: the system takes no more at once */

bool aci_map_is_cached(aci_io_queue *q, aci_store *s) {
  if (s->asked != NULL) return s->cached;
  if (!s->fixed || s->phantom) return false;
  aci_io_queue_retain(q);
  s->asked = q;
  s->cached = q->cached_bytes + s->end <= aci_host_available() / 2;
  if (s->cached) q->cached_bytes += s->end;
  return s->cached;
}

/* Of the system: 4 KiB on x86-64, up to 64 KiB on Arm. */
static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

void *aci_map_place(void *map, const aci_home *h) { return (char *)map + h->at % page_bytes(); }

bool aci_map_make(const aci_home *h, void **map, size_t *n) {
  const uint64_t from = h->at / page_bytes() * page_bytes();
  *n = (size_t)(h->at - from) + h->bytes;
  /* private: writes go to memory of ours, and the file stays unchanged */
  *map = mmap(NULL, *n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, h->store->fd,
              (off_t)from);
  if (*map == MAP_FAILED) *map = NULL;
  return *map != NULL;
}

void aci_map_free(void *map, size_t n) {
  if (map != NULL) munmap(map, n);
}

bool aci_map_is_filled(void *map, size_t n) {
  enum { PAGES = 2048 };
  unsigned char there[PAGES];
  const size_t page = page_bytes(), most = PAGES * page;
  for (size_t at = 0; at < n; at += most) {
    const size_t left = n - at, some = left < most ? left : most;
    const size_t pages = (some + page - 1) / page;
    if (mincore((char *)map + at, some, there) != 0) return false;
    for (size_t i = 0; i < pages; i++)
      if (!(there[i] & 1)) return false;
  }
  return true;
}

ac_status aci_map_fill(aci_store *s, void *map, size_t n, uint64_t end, ac_err *e) {
  int rc;
  for (size_t at = 0; at < n; at += AHEAD) /* many pages under way at once, if they are missing */
    posix_fadvise(s->fd, (off_t)(end - n + at), (off_t)(n - at < AHEAD ? n - at : AHEAD),
                  POSIX_FADV_WILLNEED);
  do rc = madvise(map, n, MADV_POPULATE_READ);
  while (rc != 0 && (errno == EINTR || errno == EAGAIN));
  if (rc == 0) return AC_OK;
  if (errno == EINVAL || errno == ENOSYS || errno == EPERM)
    return AC_FAIL(e, UNSUPPORTED, "the system does not load pages of %s", s->path);
  return AC_FAIL(e, IO, "cannot load pages of %s: error %d", s->path, errno);
}

bool aci_map_hold(aci_store *s, uint64_t end) {
  struct stat now;
  if (s->holds == 0) {
    /* A signal announces a process that waits for us. It is ignored unless a program asks for it.
     * Giving the lease back forgets the choice. */
    if (fcntl(s->fd, F_SETSIG, SIGURG) != 0 || fcntl(s->fd, F_SETLEASE, F_RDLCK) != 0) {
      s->no_map |= errno != EAGAIN; /* EAGAIN: somebody writes it now */
      return false;
    }
  }
  s->holds++;
  if (fstat(s->fd, &now) == 0 && (uint64_t)now.st_size >= end) return true;
  aci_map_drop(s);
  return false;
}

void aci_map_drop(aci_store *s) {
  if (--s->holds == 0) fcntl(s->fd, F_SETLEASE, F_UNLCK);
}
