/* Bytes to disk: blocks, O_DIRECT, io_uring, checksums (see disk.h). */
#include "file/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base_impl.h"
#include "base/crc32c.h"
#include "file/io.h"

void aci_disk_params(aci_disk *d) {
  d->buffered = !aci_params_flag("ACCEL_DIRECT_IO", true);
  d->no_uring = !aci_params_flag("ACCEL_IO_URING", true);
}

/* ---- direct or not ---- */

static bool set_direct(int fd, bool on) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

/* At an aligned place, from aligned memory. A file system that took the flag and not the write gets
 * it through the page cache. */
static ac_status write_block(aci_disk *d, const unsigned char *p, size_t n, uint64_t place,
                             ac_err *e) {
  while (n > 0) {
    const ssize_t w = pwrite(d->fd, p, n, (off_t)place);
    if (w < 0 && errno == EINTR) continue;
    if (w < 0 && errno == EINVAL && d->direct && set_direct(d->fd, false)) {
      d->direct = false;
      continue;
    }
    if (w <= 0) return aci_io_error(e, d->path, "cannot write", w < 0 ? errno : EIO);
    /* the rest after a short write may begin anywhere */
    if (w % ACI_DISK_PAGE != 0 && d->direct && set_direct(d->fd, false)) d->direct = false;
    p += w;
    n -= (size_t)w;
    place += (uint64_t)w;
  }
  return AC_OK;
}

/* Waits for one block that is under way. Bytes that the ring did not write are written here. */
static ac_status reap(aci_disk *d, ac_err *e) {
  uint64_t tag;
  int32_t n;
  const int err = aci_uring_wait(d->ring, &tag, &n);
  if (err != 0) return aci_io_error(e, d->path, "cannot wait for io_uring", err);
  d->under_way--;
  const int i = (int)tag;
  d->block[i].busy = false;
  if (n == (int32_t)d->block[i].bytes) return AC_OK;
  if (n < 0 && n != -EINTR && n != -EAGAIN && n != -EINVAL && n != -EOPNOTSUPP)
    return aci_io_error(e, d->path, "cannot write", -n);
  /* from the point at which both are aligned */
  const size_t done = n > 0 ? (size_t)n / ACI_DISK_PAGE * ACI_DISK_PAGE : 0;
  return write_block(d, d->blocks + (size_t)i * ACI_DISK_BLOCK + done, d->block[i].bytes - done,
                     d->block[i].place + done, e);
}

static ac_status send(aci_disk *d, size_t n, ac_err *e) {
  unsigned char *p = d->blocks + (size_t)d->slot * ACI_DISK_BLOCK;
  if (d->ring == NULL || !d->direct) {
    AC_TRY(write_block(d, p, n, d->place, e));
  } else {
    const int err =
        aci_uring_begin(d->ring, true, d->fd, p, (uint32_t)n, d->place, (uint64_t)d->slot);
    if (err != 0) return aci_io_error(e, d->path, "cannot submit a block to io_uring", err);
    d->block[d->slot].busy = true;
    d->block[d->slot].bytes = (uint32_t)n;
    d->block[d->slot].place = d->place;
    d->under_way++;
    d->slot = (d->slot + 1) % ACI_DISK_BLOCKS;
    while (d->block[d->slot].busy) AC_TRY(reap(d, e));
  }
  d->place += n;
  d->fill = 0;
  return AC_OK;
}

/* ---- a file ---- */

ac_status aci_disk_begin(aci_disk *d, int fd, const char *path, uint64_t head, uint64_t bytes,
                         ac_err *e) {
  AC_CHECK(d->under_way == 0, e);
  d->fd = fd;
  d->path = path;
  d->head = d->at = head;
  d->bytes = bytes;
  d->fill = 0;
  d->first_bytes = (head + ACI_DISK_PAGE - 1) / ACI_DISK_PAGE * ACI_DISK_PAGE;
  d->place = d->first_bytes;
  free(d->first);
  d->first = NULL;
  d->staged = d->direct =
      !d->buffered && bytes >= ACI_DISK_LARGE && bytes > d->first_bytes && set_direct(fd, true);
  if (!d->staged) return AC_OK;
  if (d->blocks == NULL)
    d->blocks = aligned_alloc(ACI_DISK_PAGE, (size_t)ACI_DISK_BLOCK * ACI_DISK_BLOCKS);
  if (d->first_bytes > 0) d->first = aligned_alloc(ACI_DISK_PAGE, (size_t)d->first_bytes);
  if (d->blocks == NULL || (d->first_bytes > 0 && d->first == NULL)) {
    char shown[ACI_PATH_SHOWN];
    return AC_FAIL(e, OOM, "%s: no memory for blocks to write", aci_path_shown(path, shown));
  }
  if (d->ring == NULL && !d->no_uring && !d->no_ring) {
    d->ring = aci_uring_new();
    d->no_ring = d->ring == NULL;
  }
  return AC_OK;
}

static ac_status stopped(const aci_disk *d, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  if (d->stop == NULL || !atomic_load_explicit(d->stop, memory_order_relaxed)) return AC_OK;
  return AC_FAIL(e, INTERRUPTED, "%s: writing it was given up", aci_path_shown(d->path, shown));
}

static void count(const aci_disk *d, size_t n) {
  if (d->written != NULL) atomic_fetch_add_explicit(d->written, n, memory_order_relaxed);
}

/* Copies and sums piece by piece, so that the second reading finds the cache. */
static uint32_t copy_and_sum(unsigned char *to, const unsigned char *p, size_t n, uint32_t crc) {
  enum { PIECE = 64 << 10 };
  while (n > 0) {
    const size_t k = n < PIECE ? n : PIECE;
    memcpy(to, p, k);
    crc = aci_crc32c(crc, to, k);
    to += k;
    p += k;
    n -= k;
  }
  return crc;
}

ac_status aci_disk_put(aci_disk *d, const void *data, size_t n, uint32_t *crc, ac_err *e) {
  enum { PIECE = 1 << 20 };
  const unsigned char *p = data;
  AC_CHECK(d->at + n <= d->bytes, e);
  while (n > 0) {
    size_t k;
    AC_TRY(stopped(d, e));
    if (!d->staged) { /* through the page cache, in place */
      k = n < PIECE ? n : PIECE;
      *crc = aci_crc32c(*crc, p, k);
      AC_TRY(aci_pwrite_all(d->fd, d->path, p, k, d->at, e));
    } else if (d->at < d->first_bytes) {
      const uint64_t room = d->first_bytes - d->at;
      k = n < room ? n : (size_t)room;
      *crc = copy_and_sum(d->first + d->at, p, k, *crc);
    } else {
      const size_t room = ACI_DISK_BLOCK - d->fill;
      k = n < room ? n : room;
      *crc = copy_and_sum(d->blocks + (size_t)d->slot * ACI_DISK_BLOCK + d->fill, p, k, *crc);
      d->fill += k;
      if (d->fill == ACI_DISK_BLOCK) AC_TRY(send(d, ACI_DISK_BLOCK, e));
    }
    d->at += k;
    p += k;
    n -= k;
    count(d, k);
  }
  return AC_OK;
}

ac_status aci_disk_end(aci_disk *d, const void *head, ac_err *e) {
  AC_CHECK(d->at == d->bytes, e);
  AC_TRY(stopped(d, e));
  bool padded = false;
  if (d->fill > 0) {
    const size_t n = (d->fill + ACI_DISK_PAGE - 1) / ACI_DISK_PAGE * ACI_DISK_PAGE;
    memset(d->blocks + (size_t)d->slot * ACI_DISK_BLOCK + d->fill, 0, n - d->fill);
    padded = n != d->fill;
    AC_TRY(send(d, n, e));
  }
  while (d->under_way > 0) AC_TRY(reap(d, e));
  if (d->first != NULL) {
    memcpy(d->first, head, (size_t)d->head);
    AC_TRY(write_block(d, d->first, (size_t)d->first_bytes, 0, e));
  } else if (d->head > 0) {
    AC_TRY(aci_pwrite_all(d->fd, d->path, head, (size_t)d->head, 0, e));
  }
  count(d, (size_t)d->head);
  if (padded) {
    int rc;
    ACI_AGAIN(rc, ftruncate(d->fd, (off_t)d->bytes));
    if (rc != 0) return aci_io_error(e, d->path, "cannot give it its length", errno);
  }
  return AC_OK;
}

void aci_disk_fini(aci_disk *d) {
  uint64_t tag;
  int32_t n;
  bool lost = false; /* the kernel may still read the blocks */
  while (d->under_way > 0 && !lost) {
    lost = aci_uring_wait(d->ring, &tag, &n) != 0;
    d->under_way--;
  }
  aci_uring_free(d->ring);
  if (!lost) free(d->blocks);
  free(d->first);
  d->ring = NULL;
  d->blocks = d->first = NULL;
}
