/* Calls to the system that fail on demand: this program's own pread, pwrite, fallocate and ftruncate stand before the C library's. For one
 * test program, which says when by arm(). */
#ifndef ACI_TEST_FAULT_CALLS_H
#define ACI_TEST_FAULT_CALLS_H
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

enum kind { NONE, WITH_EIO, WITH_ENOSPC, WITH_EINTR, SHORT, KINDS };

static _Atomic bool armed, persistent;
static _Atomic int calls, fault_at, fault_kind;
enum { STORM = 40 }; /* calls in a row that EINTR interrupts */

static enum kind fault(bool moves) {
  if (!atomic_load(&armed)) return NONE;
  const int i = atomic_fetch_add(&calls, 1) + 1, at = atomic_load(&fault_at);
  const enum kind k = (enum kind)atomic_load(&fault_kind);
  if (at == 0 || i < at || (i > at && (!atomic_load(&persistent) || (k == WITH_EINTR && i > at + STORM)))) return NONE;
  if (k == SHORT) return moves ? SHORT : NONE;
  errno = k == WITH_EIO ? EIO : k == WITH_ENOSPC ? ENOSPC : EINTR;
  return k;
}

#define REAL(name, type)        \
  static __typeof__(type) real; \
  if (real == NULL) *(void **)(&real) = dlsym(RTLD_NEXT, name)

ssize_t pread(int fd, void *p, size_t n, off_t at) {
  REAL("pread", ssize_t(*)(int, void *, size_t, off_t));
  const enum kind k = fault(n > 1);
  return k == NONE ? real(fd, p, n, at) : k == SHORT ? real(fd, p, n / 2, at) : -1;
}
ssize_t pwrite(int fd, const void *p, size_t n, off_t at) {
  REAL("pwrite", ssize_t(*)(int, const void *, size_t, off_t));
  const enum kind k = fault(n > 1);
  return k == NONE ? real(fd, p, n, at) : k == SHORT ? real(fd, p, n / 2, at) : -1;
}
int fallocate(int fd, int mode, off_t at, off_t n) {
  REAL("fallocate", int (*)(int, int, off_t, off_t));
  return fault(false) != NONE ? -1 : real(fd, mode, at, n);
}
int ftruncate(int fd, off_t n) {
  REAL("ftruncate", int (*)(int, off_t));
  return fault(false) != NONE ? -1 : real(fd, n);
}

static void arm(int at, enum kind k, bool always) {
  atomic_store(&calls, 0);
  atomic_store(&fault_at, at);
  atomic_store(&fault_kind, k);
  atomic_store(&persistent, always);
  atomic_store(&armed, true);
}

/* Calls that were made since arm(). */
static int disarm(void) {
  atomic_store(&armed, false);
  return atomic_load(&calls);
}

#endif
