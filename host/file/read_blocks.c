/* Long reads, in blocks on several threads: a thread copies out of the page cache at a fraction of
 * the memory's rate. Called by the readers of tensors and by host/ckpt. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "file/io.h"

/* A piece is summed while it lies in a core's cache. */
enum { PIECE = 256 << 10, BLOCK = 1 << 20 };

/* On the calling thread. p: NULL for the checksum alone. crc: NULL for the bytes alone. */
static ac_status read_serially(int fd, const char *path, unsigned char *p, uint64_t n,
                               uint64_t offset, uint32_t *crc, ac_err *e) {
  if (p != NULL && crc == NULL) return aci_pread_all(fd, path, p, (size_t)n, offset, e);
  unsigned char *buf = p == NULL ? malloc(PIECE) : NULL;
  if (p == NULL && buf == NULL) return AC_FAIL(e, OOM, "no memory to read %s", path);
  ac_status st = AC_OK;
  uint32_t sum = 0;
  for (uint64_t at = 0; at < n && st == AC_OK; at += PIECE) {
    const size_t k = n - at < PIECE ? (size_t)(n - at) : PIECE;
    unsigned char *to = p != NULL ? p + at : buf;
    st = aci_pread_all(fd, path, to, k, offset + at, e);
    if (st == AC_OK) sum = aci_crc32c(sum, to, k);
  }
  free(buf);
  if (crc != NULL) *crc = sum;
  return st;
}

typedef struct read_job {
  int fd;
  const char *path;
  unsigned char *p;
  uint64_t n, offset;
  uint32_t *crc;        /* by block, or NULL */
  _Atomic int64_t bad;  /* the first block that failed so far. Later ones need not be read */
  pthread_mutex_t lock; /* for st and err, which belong to `bad` */
  ac_status st;
  ac_err err;
} read_job;

static uint64_t bytes_of(const read_job *j, int64_t block) {
  const uint64_t left = j->n - (uint64_t)block * BLOCK;
  return left < BLOCK ? left : BLOCK;
}

static void read_range(void *arg, int64_t begin, int64_t end) {
  read_job *j = arg;
  for (int64_t i = begin; i < end; i++) {
    ac_err e;
    if (i > atomic_load_explicit(&j->bad, memory_order_relaxed)) return;
    const uint64_t at = (uint64_t)i * BLOCK;
    const ac_status st =
        read_serially(j->fd, j->path, j->p != NULL ? j->p + at : NULL, bytes_of(j, i),
                      j->offset + at, j->crc != NULL ? &j->crc[i] : NULL, &e);
    if (st == AC_OK) continue;
    pthread_mutex_lock(&j->lock);
    if (i < atomic_load_explicit(&j->bad, memory_order_relaxed)) {
      atomic_store_explicit(&j->bad, i, memory_order_relaxed);
      j->st = st;
      j->err = e;
    }
    pthread_mutex_unlock(&j->lock);
    return;
  }
}

ac_status aci_read_blocks(int fd, const char *path, void *p, uint64_t n, uint64_t offset,
                          ac_team *team, uint32_t *crc, ac_err *e) {
  const int64_t blocks = (int64_t)((n + BLOCK - 1) / BLOCK);
  if (team == NULL || blocks < 2) return read_serially(fd, path, p, n, offset, crc, e);
  read_job j = {.fd = fd, .path = path, .p = p, .n = n, .offset = offset, .bad = INT64_MAX};
  if (crc != NULL && (j.crc = malloc((size_t)blocks * sizeof *j.crc)) == NULL)
    return AC_FAIL(e, OOM, "no memory to read %s", path);
  pthread_mutex_init(&j.lock, NULL);
  ac_parallel_for(team, blocks, 1, read_range, &j);
  pthread_mutex_destroy(&j.lock);
  if (j.st != AC_OK && e != NULL) *e = j.err;
  if (j.st == AC_OK && crc != NULL) {
    *crc = 0;
    for (int64_t i = 0; i < blocks; i++) *crc = aci_crc32c_combine(*crc, j.crc[i], bytes_of(&j, i));
  }
  free(j.crc);
  return j.st;
}
