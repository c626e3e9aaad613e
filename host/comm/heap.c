/* The heap: one file in memory per local rank, mapped by all of them, so that collectives work on
 * parameters and gradient buckets in place. It is a source of memory for the pool of the CPU device
 * (accel/device.h).
 *
 * Every rank maps the whole range of every heap once. A heap grows by giving pages to its file, so
 * peers need no message, and pages exist before they are handed out: no later access can fail for
 * want of memory. Memory that the pool frees keeps its addresses for reuse and loses its pages.
 * Blocks may outlive the world: the pool's use keeps the mapping of the own heap. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base_impl.h"
#include "comm/comm_impl.h"

static const size_t LEAST_SPAN = (size_t)64 << 20, USUAL_SPAN = (size_t)256 << 30,
                    STEP = (size_t)16 << 20;

typedef struct range {
  size_t at, bytes;
  struct range *next; /* by address, none touches the next */
} range;

struct aci_heap_maps {
  _Atomic int refs; /* the world's and the pool's */
  int fd, n, me;    /* fd: of the own heap */
  size_t span;
  ac_device *dev;
  unsigned char *base[ACI_MAX_LOCAL];
  /* of the own heap. Under the pool's lock */
  size_t end; /* all that was ever handed out lies below */
  range *free;
  _Atomic size_t used;
  /* memory that several ranks hold (shared.c) */
  _Atomic int foreign; /* uses of other ranks' heaps */
  _Atomic bool closed, kept;
  _Atomic(void *) left;
};

ac_status aci_heap_make(int *fd, ac_err *e) {
  const uint64_t memory = aci_host_memory();
  /* addresses only. Several times the usable size, since ranges may be in pieces */
  size_t span = USUAL_SPAN;
  while (span / 4 < memory && span < SIZE_MAX / 4) span *= 2;
  *fd = memfd_create("accel-heap", MFD_CLOEXEC);
  if (*fd < 0) return AC_FAIL(e, OOM, "cannot make a heap that ranks share: %s", strerror(errno));
  if (ftruncate(*fd, (off_t)span) == 0) return AC_OK;
  ac_status st = AC_FAIL(e, OOM, "cannot make a heap of %zu GiB of addresses: %s", span >> 30,
                         strerror(errno));
  close(*fd);
  *fd = -1;
  return st;
}

/* ---- the source ---- */
static ac_status commit(int fd, size_t at, size_t bytes, ac_err *e) {
  for (size_t done = 0; done < bytes;) {
    /* a signal may end a long call and undo it */
    const size_t n = bytes - done < STEP ? bytes - done : STEP;
    if (fallocate(fd, 0, (off_t)(at + done), (off_t)n) == 0 || errno == EOPNOTSUPP) {
      done += n;
    } else if (errno != EINTR) {
      char size[24];
      ac_status st =
          AC_FAIL(e, OOM, "the system does not provide %s of memory for ranks to share: %s",
                  aci_bytes_text(size, sizeof size, bytes), strerror(errno));
      fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)bytes);
      return st;
    }
  }
  return AC_OK;
}

/* When the addresses run out (ulimit -v), collectives copy instead. */
static ac_status private_map(size_t bytes, void **out, ac_err *e) {
  char size[24];
  void *p =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    return AC_FAIL(e, OOM, "the system does not provide %s: %s",
                   aci_bytes_text(size, sizeof size, bytes), strerror(errno));
  *out = p;
  return AC_OK;
}

static ac_status heap_map(void *user, size_t bytes, void **out, ac_err *e) {
  aci_heap_maps *h = user;
  bytes = (bytes + 4095) & ~(size_t)4095;
  range **at = &h->free;
  while (*at != NULL && (*at)->bytes < bytes) at = &(*at)->next;
  const size_t where = *at != NULL ? (*at)->at : h->end;
  if (bytes > h->span - where) return private_map(bytes, out, e);
  AC_TRY(commit(h->fd, where, bytes, e));
  if (*at == NULL) {
    h->end += bytes;
  } else if ((*at)->bytes == bytes) {
    range *r = *at;
    *at = r->next;
    free(r);
  } else {
    (*at)->at += bytes;
    (*at)->bytes -= bytes;
  }
  atomic_fetch_add_explicit(&h->used, bytes, memory_order_relaxed);
  *out = h->base[h->me] + where;
  return AC_OK;
}

static void heap_unmap(void *user, void *p, size_t bytes) {
  aci_heap_maps *h = user;
  bytes = (bytes + 4095) & ~(size_t)4095;
  const uintptr_t base = (uintptr_t)h->base[h->me];
  if ((uintptr_t)p < base || (uintptr_t)p - base >= h->span) {
    munmap(p, bytes);
    return;
  }
  const size_t where = (uintptr_t)p - base;
  if (!atomic_load(&h->kept))
    fallocate(h->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)where, (off_t)bytes);
  atomic_fetch_sub_explicit(&h->used, bytes, memory_order_relaxed);
  range **at = &h->free, *prev = NULL;
  while (*at != NULL && (*at)->at < where) {
    prev = *at;
    at = &prev->next;
  }
  range *next = *at;
  if (prev != NULL && prev->at + prev->bytes == where) {
    prev->bytes += bytes;
    if (next != NULL && prev->at + prev->bytes == next->at) {
      prev->bytes += next->bytes;
      prev->next = next->next;
      free(next);
    }
    return;
  }
  if (next != NULL && where + bytes == next->at) {
    next->at = where;
    next->bytes += bytes;
    return;
  }
  range *r = malloc(sizeof *r);
  if (r == NULL) return; /* the addresses are lost, the pages are not */
  *r = (range){.at = where, .bytes = bytes, .next = next};
  *at = r;
}

static void unmap_all(aci_heap_maps *h) {
  for (int i = 0; i < h->n; i++)
    if (h->base[i] != NULL) munmap(h->base[i], h->span);
  memset(h->base, 0, sizeof h->base);
}

static void heap_release(void *user) {
  aci_heap_maps *h = user;
  if (atomic_fetch_sub(&h->refs, 1) != 1) return;
  unmap_all(h);
  for (range *r = h->free, *next; r != NULL; r = next) {
    next = r->next;
    free(r);
  }
  close(h->fd);
  free(h);
}

/* ---- the maps ---- */
static ac_status map_all(aci_heap_maps *h, const int *fds, ac_err *e) {
  struct stat s;
  for (int i = 0; i < h->n; i++) {
    if (fstat(fds[i], &s) != 0 || !S_ISREG(s.st_mode) || s.st_size < (off_t)LEAST_SPAN)
      return AC_FAIL(
          e, INVALID,
          "descriptor %d is not a heap of accel-run; ACCEL_WORLD is set by it for its ranks only",
          fds[i]);
    if (i == 0 || (size_t)s.st_size < h->span) h->span = (size_t)s.st_size;
  }
  struct rlimit limit;
  const size_t n = (size_t)h->n;
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur / 2 / n < h->span)
    h->span = (size_t)limit.rlim_cur / 2 / n & ~((size_t)(2 << 20) - 1);
  for (; h->span >= LEAST_SPAN; h->span = h->span / 2 & ~((size_t)(2 << 20) - 1)) {
    int i = 0;
    for (; i < h->n; i++) {
      void *p = mmap(NULL, h->span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fds[i], 0);
      if (p == MAP_FAILED) break;
      madvise(p, h->span, MADV_DONTDUMP);
      h->base[i] = p;
    }
    if (i == h->n) return AC_OK;
    unmap_all(h);
  }
  return AC_FAIL(e, OOM, "no addresses for the heaps of %d ranks; raise ulimit -v", h->n);
}

ac_status aci_heap_maps_open(ac_world *w, ac_err *e) {
  const aci_place *p = &w->place;
  w->heap = NULL;
  if (p->n_heaps == 0) return AC_OK;
  aci_heap_maps *h = calloc(1, sizeof *h);
  if (h == NULL) return AC_FAIL(e, OOM, "no memory for the heaps' tables");
  atomic_init(&h->refs, 1);
  h->fd = -1;
  h->n = p->n_heaps;
  h->me = p->local_rank;
  ac_status st = AC_OK;
  if (h->n != p->local_size || h->me >= h->n) {
    st = AC_FAIL(e, INVALID, "%d heaps for %d ranks of this machine", h->n, p->local_size);
    goto fail;
  }
  AC_GOTO(fail, st, ac_ctx_device(w->ctx, "cpu", &h->dev, e));
  /* the world's descriptors stay its own. The heap keeps a copy of this rank's for later commits */
  AC_GOTO(fail, st, map_all(h, p->fd_heap, e));
  if ((h->fd = fcntl(p->fd_heap[h->me], F_DUPFD_CLOEXEC, 3)) < 0) {
    st = AC_FAIL(e, IO, "the rank's heap: %s", strerror(errno));
    goto fail;
  }
  /* two references: the world's and the source's, since blocks may outlive the world */
  const ac_mem_source source = {sizeof source, heap_map, heap_unmap, heap_release, h};
  atomic_fetch_add(&h->refs, 1);
  if ((st = ac_device_set_source(h->dev, AC_MEM_PARAMETER, &source, e)) != AC_OK) {
    atomic_fetch_sub(&h->refs, 1);
    goto fail;
  }
  w->heap = h;
  if (w->page != NULL) w->page->heap_span = h->span;
  return AC_OK;
fail:
  unmap_all(h);
  if (h->fd >= 0) close(h->fd);
  free(h);
  return st;
}

void aci_heap_maps_close(ac_world *w) {
  aci_heap_maps *h = w->heap;
  if (h == NULL) return;
  w->heap = NULL;
  atomic_store(&h->closed, true);
  aci_shared_sweep(h, true);
  for (int i = 0; i < h->n && atomic_load(&h->foreign) == 0; i++) {
    if (i == h->me) continue;
    munmap(h->base[i], h->span);
    h->base[i] = NULL;
  }
  (void)ac_device_set_source(h->dev, AC_MEM_PARAMETER, NULL, NULL);
  heap_release(h);
}

bool aci_heap_offset(const ac_world *w, const void *p, size_t bytes, uint64_t *offset) {
  const aci_heap_maps *h = w->heap;
  if (h == NULL) return false;
  const uintptr_t at = (uintptr_t)p, base = (uintptr_t)h->base[h->me];
  if (at < base || at - base > h->span || bytes > h->span - (at - base)) return false;
  *offset = at - base;
  return true;
}

unsigned char *aci_heap_base(const ac_world *w, int local_rank) {
  return w->heap != NULL && local_rank >= 0 && local_rank < w->heap->n ? w->heap->base[local_rank]
                                                                       : NULL;
}

size_t aci_heap_span(const ac_world *w) { return w->heap == NULL ? 0 : w->heap->span; }

size_t ac_world_heap_bytes(const ac_world *w) {
  return w->heap == NULL ? 0 : atomic_load_explicit(&w->heap->used, memory_order_relaxed);
}

bool aci_heap_holds_foreign(const ac_world *w) {
  return w->heap != NULL && atomic_load(&w->heap->foreign) != 0;
}

void aci_heap_maps_hold(aci_heap_maps *h, bool foreign) {
  atomic_fetch_add(&h->refs, 1);
  if (foreign) atomic_fetch_add(&h->foreign, 1);
}

void aci_heap_maps_let_go(aci_heap_maps *h, bool foreign) {
  if (foreign) atomic_fetch_sub(&h->foreign, 1);
  heap_release(h);
}

void aci_heap_maps_keep(aci_heap_maps *h) { atomic_store(&h->kept, true); }
bool aci_heap_maps_closed(aci_heap_maps *h) { return atomic_load(&h->closed); }
_Atomic(void *) *aci_heap_maps_left(aci_heap_maps *h) { return &h->left; }
