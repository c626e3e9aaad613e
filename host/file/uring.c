/* The two rings that a program shares with the kernel: requests go in at the tail of one, results
 * come out at the head of the other. One thread uses a ring. */
#include "file/uring.h"

#if __has_include(<linux/io_uring.h>)
#include <errno.h>
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct aci_uring {
  int fd;
  unsigned char *ring; /* both rings: IORING_FEAT_SINGLE_MMAP */
  size_t ring_bytes;
  struct io_uring_sqe *sqe;
  size_t sqe_bytes;
  _Atomic unsigned *sq_tail, *cq_head, *cq_tail;
  unsigned sq_mask, cq_mask, *sq_array;
  const struct io_uring_cqe *cqe;
};

aci_uring *aci_uring_new(void) {
  struct io_uring_params p;
  memset(&p, 0, sizeof p);
  aci_uring *r = calloc(1, sizeof *r);
  if (r == NULL) return NULL;
  r->ring = MAP_FAILED;
  r->sqe = MAP_FAILED;
  r->fd = (int)syscall(SYS_io_uring_setup, ACI_URING_DEPTH, &p);
  if (r->fd < 0 || !(p.features & IORING_FEAT_SINGLE_MMAP)) goto none;
  const size_t sq = p.sq_off.array + p.sq_entries * sizeof(unsigned),
               cq = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
  r->ring_bytes = sq > cq ? sq : cq;
  r->sqe_bytes = p.sq_entries * sizeof *r->sqe;
  r->ring = mmap(NULL, r->ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd,
                 IORING_OFF_SQ_RING);
  if (r->ring == MAP_FAILED) goto none;
  r->sqe = mmap(NULL, r->sqe_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd,
                IORING_OFF_SQES);
  if (r->sqe == MAP_FAILED) goto none;
  r->sq_tail = (_Atomic unsigned *)(void *)(r->ring + p.sq_off.tail);
  r->sq_mask = *(unsigned *)(void *)(r->ring + p.sq_off.ring_mask);
  r->sq_array = (unsigned *)(void *)(r->ring + p.sq_off.array);
  r->cq_head = (_Atomic unsigned *)(void *)(r->ring + p.cq_off.head);
  r->cq_tail = (_Atomic unsigned *)(void *)(r->ring + p.cq_off.tail);
  r->cq_mask = *(unsigned *)(void *)(r->ring + p.cq_off.ring_mask);
  r->cqe = (const struct io_uring_cqe *)(const void *)(r->ring + p.cq_off.cqes);
  return r;
none:
  aci_uring_free(r);
  return NULL;
}

void aci_uring_free(aci_uring *r) {
  if (r == NULL) return;
  if (r->sqe != MAP_FAILED) munmap(r->sqe, r->sqe_bytes);
  if (r->ring != MAP_FAILED) munmap(r->ring, r->ring_bytes);
  if (r->fd >= 0) close(r->fd);
  free(r);
}

static int enter(const aci_uring *r, unsigned submit, unsigned wait) {
  return (int)syscall(SYS_io_uring_enter, r->fd, submit, wait,
                      wait > 0 ? IORING_ENTER_GETEVENTS : 0u, NULL, (size_t)0);
}

int aci_uring_begin(aci_uring *r, bool write, int fd, void *p, uint32_t n, uint64_t offset,
                    uint64_t tag) {
  const unsigned tail = atomic_load_explicit(r->sq_tail, memory_order_relaxed),
                 i = tail & r->sq_mask;
  r->sqe[i] = (struct io_uring_sqe){.opcode = write ? IORING_OP_WRITE : IORING_OP_READ,
                                    .fd = fd,
                                    .addr = (uint64_t)(uintptr_t)p,
                                    .len = n,
                                    .off = offset,
                                    .user_data = tag};
  r->sq_array[i] = i;
  atomic_store_explicit(r->sq_tail, tail + 1, memory_order_release);
  for (;;) {
    if (enter(r, 1, 0) == 1) return 0;
    if (errno == EINTR || errno == EAGAIN || errno == EBUSY) continue;
    atomic_store_explicit(r->sq_tail, tail, memory_order_release); /* the kernel took nothing */
    return errno;
  }
}

int aci_uring_wait(aci_uring *r, uint64_t *tag, int32_t *result) {
  const unsigned head = atomic_load_explicit(r->cq_head, memory_order_relaxed);
  while (atomic_load_explicit(r->cq_tail, memory_order_acquire) == head)
    if (enter(r, 0, 1) < 0 && errno != EINTR && errno != EAGAIN) return errno;
  *tag = r->cqe[head & r->cq_mask].user_data;
  *result = r->cqe[head & r->cq_mask].res;
  atomic_store_explicit(r->cq_head, head + 1, memory_order_release);
  return 0;
}

#else
aci_uring *aci_uring_new(void) { return NULL; }
void aci_uring_free(aci_uring *r) { (void)r; }
int aci_uring_begin(aci_uring *r, bool write, int fd, void *p, uint32_t n, uint64_t offset,
                    uint64_t tag) {
  return 38;
}
int aci_uring_wait(aci_uring *r, uint64_t *tag, int32_t *result) { return 38; }
#endif
