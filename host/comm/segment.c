/* The control segment: making and mapping it, status pages, aborts, futexes. Called by the
 * launcher, world.c, the waits and the shared-memory backend. */
#include "comm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base_impl.h"
#include "base/relax.h"

static const char magic[8] = {'a', 'c', 'c', 'e', 'l', 's', 'g', '1'};

/* Launcher and ranks must agree on every structure. */
static uint32_t layout_of(void) {
  const size_t sizes[] = {sizeof(aci_head),
                          sizeof(aci_page),
                          sizeof(aci_slot),
                          sizeof(aci_stage),
                          sizeof(aci_mailbox),
                          sizeof(aci_desc),
                          offsetof(aci_page, at),
                          offsetof(aci_page, want),
                          offsetof(aci_page, late_ns),
                          offsetof(aci_page, phase),
                          offsetof(aci_page, joins),
                          offsetof(aci_head, members),
                          ACI_GROUPS,
                          AC_COLL_KINDS,
                          AC_DTYPE_COUNT};
  uint32_t h = 2166136261u;
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    h = (h ^ (uint32_t)sizes[i]) * 16777619u;
  return h;
}

static size_t page_up(size_t n) { return (n + 4095) & ~(size_t)4095; }

static ac_status map(int fd, size_t bytes, aci_head **out, ac_err *e) {
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (p == MAP_FAILED)
    return AC_FAIL(
        e, OOM,
        "cannot map the %zu MiB of address space of the ranks' segment: %s; raise ulimit -v",
        bytes >> 20, strerror(errno));
  madvise(p, bytes, MADV_DONTDUMP);
  *out = p;
  return AC_OK;
}

/* In steps: a signal may end a long call and undo it. */
static ac_status commit(int fd, size_t at, size_t bytes, ac_err *e) {
  enum { STEP = 16 << 20 };
  while (bytes > 0) {
    const size_t n = bytes < STEP ? bytes : STEP;
    if (fallocate(fd, 0, (off_t)at, (off_t)n) != 0) {
      if (errno == EINTR) continue;
      if (errno == EOPNOTSUPP) return AC_OK;
      return AC_FAIL(e, OOM, "no memory for %zu KiB shared by the ranks: %s", bytes >> 10,
                     strerror(errno));
    }
    at += n;
    bytes -= n;
  }
  return AC_OK;
}

ac_status aci_segment_commit(const aci_segment_map *m, const void *p, size_t bytes, ac_err *e) {
  const size_t at = (size_t)((const char *)p - (const char *)m->head), from = at & ~(size_t)4095;
  return commit(m->fd, from, page_up(at + bytes) - from, e);
}

ac_status aci_segment_make(int n_ranks, aci_segment_map *out, ac_err *e) {
  *out = (aci_segment_map){.fd = -1};
  if (n_ranks < 1 || n_ranks > ACI_MAX_LOCAL)
    return AC_FAIL(e, INVALID, "%d ranks on one machine; 1 to %d can share memory", n_ranks,
                   ACI_MAX_LOCAL);
  const size_t n = (size_t)n_ranks;
  aci_head h = {
      .layout = layout_of(), .n_ranks = (uint32_t)n_ranks, .n_cpus = (uint32_t)aci_host_cpus()};
  memcpy(h.magic, magic, sizeof magic);
  if (getrandom(h.run_id, sizeof h.run_id, 0) != (ssize_t)sizeof h.run_id)
    h.run_id[0] = (uint64_t)aci_now_ns();
  /* head and pages are committed below. Slots, stages and mailboxes are committed on first use */
  h.at_pages = page_up(sizeof h);
  h.at_slots = page_up(h.at_pages + n * sizeof(aci_page));
  h.at_stages = page_up(h.at_slots + ACI_GROUPS * n * sizeof(aci_slot));
  h.at_mailboxes = h.at_stages + ACI_GROUPS * n * sizeof(aci_stage);
  h.total = h.at_mailboxes + n * n * sizeof(aci_mailbox);
  const int fd = memfd_create("accel-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return AC_FAIL(e, OOM, "cannot make memory that ranks share: %s", strerror(errno));
  ac_status st = AC_OK;
  aci_head *p = NULL;
  if (ftruncate(fd, (off_t)h.total) != 0) {
    const bool limit = errno == EFBIG;
    st = AC_FAIL(e, OOM, "cannot make a segment of %zu MiB for %d ranks: %s%s", h.total >> 20,
                 n_ranks, strerror(errno), limit ? "; raise ulimit -f" : "");
    goto fail;
  }
  fcntl(fd, F_ADD_SEALS,
        F_SEAL_SHRINK |
            /* nobody can make accesses fail by cutting it. It works without seals as well */
            F_SEAL_GROW);
  AC_GOTO(fail, st, commit(fd, 0, h.at_slots, e));
  AC_GOTO(fail, st, map(fd, h.total, &p, e));
  memcpy(p, &h, sizeof h);
  for (int r = 0; r < n_ranks; r++) {
    atomic_init(&aci_page_of(p, r)->loss, NAN);
    atomic_init(&aci_page_of(p, r)->tokens_per_s, NAN);
  }
  *out = (aci_segment_map){.fd = fd, .head = p};
  return AC_OK;
fail:
  close(fd);
  return st;
}

ac_status aci_segment_open(int fd, aci_segment_map *out, ac_err *e) {
  *out = (aci_segment_map){.fd = -1};
  struct stat s;
  if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode) || (size_t)s.st_size < sizeof(aci_head))
    return AC_FAIL(
        e, INVALID,
        "descriptor %d is not a segment of accel-run; ACCEL_WORLD is set by it for its ranks only",
        fd);
  aci_head *h;
  AC_TRY(map(fd, (size_t)s.st_size, &h, e));
  ac_status st = AC_OK;
  if (memcmp(h->magic, magic, sizeof magic) != 0)
    st = AC_FAIL(
        e, INVALID,
        "descriptor %d is not a segment of accel-run; ACCEL_WORLD is set by it for its ranks only",
        fd);
  else if (h->layout != layout_of() || h->total != (size_t)s.st_size)
    st = AC_FAIL(e, MISMATCH,
                 "accel-run and this rank are of different versions of accel; install one");
  if (st != AC_OK) {
    munmap(h, (size_t)s.st_size);
    return st;
  }
  *out = (aci_segment_map){.fd = fd, .head = h};
  return AC_OK;
}

void aci_segment_close(aci_segment_map *m) {
  if (m->head != NULL) munmap(m->head, m->head->total);
  if (m->fd >= 0) close(m->fd);
  *m = (aci_segment_map){.fd = -1};
}

void aci_segment_key_done(aci_head *h) {
  if (atomic_fetch_add(&h->key_done, 1) + 1 == h->n_ranks)
    explicit_bzero(h->job_key, sizeof h->job_key);
}

/* ---- abort ---- */
void aci_segment_wake(aci_head *h) {
  const uint32_t n = atomic_load(&h->n_slots);
  for (uint32_t g = 0; g < n; g++) {
    for (uint32_t r = 0; r < h->n_ranks; r++) {
      aci_slot *s = aci_slot_of(h, (int)g, (int)r);
      if (atomic_load(&s->sleepers) == 0) continue;
      aci_futex_wake(&s->arrived);
      aci_futex_wake(&s->phase);
    }
  }
  for (uint32_t r = 0; r < h->n_ranks; r++) aci_doorbell_ring(aci_page_of(h, (int)r));
  for (uint32_t r = 0; r < h->n_ranks; r++) aci_futex_wake(&aci_page_of(h, (int)r)->state);
}

bool aci_abort_segment(aci_head *h, ac_status code, int rank, const char *text) {
  aci_abort_reason *v = &h->abort_reason;
  if (atomic_exchange(&v->taken, 1) != 0) return false;
  v->code = (int32_t)code;
  v->rank = rank;
  snprintf(v->text, sizeof v->text, "%s", text);
  atomic_store(&v->set, 1);
  aci_futex_wake(&v->set);
  aci_segment_wake(h);
  return true;
}

void aci_abort_clear(aci_head *h) {
  atomic_store(&h->abort_reason.set, 0);
  atomic_store(&h->abort_reason.taken, 0);
}

/* A hole in the file reads as zeros, and ranks give their parts pages again when they open them. */
ac_status aci_segment_empty(const aci_segment_map *m, ac_err *e) {
  const off_t at = (off_t)m->head->at_slots, bytes = (off_t)m->head->total - at;
  while (fallocate(m->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, bytes) != 0)
    if (errno != EINTR)
      return AC_FAIL(e, IO, "cannot empty the memory that the ranks share: %s", strerror(errno));
  for (int g = 0; g < ACI_GROUPS; g++) atomic_store(&m->head->base[g], 0);
  return AC_OK;
}

/* ---- pages ---- */
/* Another thread of this process holds it for the time of a memcpy. */
void aci_page_lock(aci_page *p) {
  for (;;) {
    uint32_t g = atomic_load_explicit(&p->guard, memory_order_relaxed) & ~1u;
    if (atomic_compare_exchange_weak_explicit(&p->guard, &g, g + 1, memory_order_acquire,
                                              memory_order_relaxed))
      break;
    aci_relax();
  }
  atomic_thread_fence(memory_order_release); /* later writes are not visible before the odd guard */
}

void aci_page_unlock(aci_page *p) { atomic_fetch_add_explicit(&p->guard, 1, memory_order_release); }

/* A writer that died in the middle leaves the guard odd. Readers wait long enough for a writer that
 * was only descheduled, then take the page as it is. */
void aci_page_read(const aci_page *p, aci_page *copy) {
  enum { SPINS = 1000, SLEEPS = 1000 };
  const struct timespec pause = {.tv_nsec = 100000};
  aci_page *from = (aci_page *)(uintptr_t)p;
  for (int turn = 0;; turn++) {
    const uint32_t before = atomic_load_explicit(&from->guard, memory_order_acquire);
    const bool last = turn == SPINS + SLEEPS;
    if ((before & 1) == 0 || last) {
      memcpy((void *)copy, (const void *)p, sizeof *copy);
      atomic_thread_fence(memory_order_acquire);
      if (last || atomic_load_explicit(&from->guard, memory_order_relaxed) == before) break;
    }
    if (turn < SPINS) aci_relax();
    else nanosleep(&pause, NULL);
  }
  copy->version[sizeof copy->version - 1] = copy->host[sizeof copy->host - 1] =
      copy->script[sizeof copy->script - 1] = 0;
  copy->at[sizeof copy->at - 1] = copy->want.site[sizeof copy->want.site - 1] =
      copy->last[sizeof copy->last - 1] = 0;
}

void aci_page_set_at(aci_page *p, const char *site, uint64_t step) {
  const size_t n = site == NULL ? 0 : strnlen(site, sizeof p->at - 1);
  aci_page_lock(p);
  if (n > 0) {
    memcpy(p->at, site, n);
    p->at[n] = 0;
  }
  p->step = step;
  aci_page_unlock(p);
  atomic_fetch_add_explicit(&p->beat, 1, memory_order_relaxed);
}

/* ---- time ---- */
void aci_futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t timeout_ns) {
  struct timespec t = {.tv_sec = (time_t)(timeout_ns / 1000000000),
                       .tv_nsec = (long)(timeout_ns % 1000000000)};
  syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT, value, timeout_ns < 0 ? NULL : &t, NULL, 0);
}

void aci_futex_wake(_Atomic uint32_t *word) {
  syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Either the ringer sees the sleeper, or the sleeper, which counts itself first, sees that the word
 * is another one. */
void aci_doorbell_ring(aci_page *p) {
  atomic_fetch_add(&p->doorbell, 1);
  if (atomic_load(&p->doorbell_sleepers) != 0) aci_futex_wake(&p->doorbell);
}

void aci_doorbell_wait(aci_page *p, uint32_t seen, int64_t ns) {
  atomic_fetch_add(&p->doorbell_sleepers, 1);
  if (atomic_load(&p->doorbell) == seen) aci_futex_wait(&p->doorbell, seen, ns);
  atomic_fetch_sub(&p->doorbell_sleepers, 1);
}

int64_t aci_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
