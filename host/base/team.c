/* The thread team: persistent workers for ac_parallel_for, the only threading construct of kernels.
 *
 * A job is announced, not assigned: the caller opens the gate, works through the pieces itself,
 * closes the gate, and then waits only for those workers that came in. A worker that sleeps or lost
 * its core delays nobody, and a team whose threads are gone (after fork) still gives right results.
 * The gate is one word, (epoch << 32 | open bit | workers inside): workers enter by
 * compare-and-swap while it is open, and touch the job only between entering and leaving.
 *
 * Pieces: slot s of the team owns the s-th part of them and then helps the others, so that in a row
 * of ops over the same tensors a piece tends to meet the cache that already holds it. The result
 * does not depend on which thread runs a piece. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "accel/base.h"
#include "base/base_impl.h"
#include "base/relax.h"

#define OPEN ((uint64_t)1 << 31)
#define INSIDE (OPEN - 1)
enum { LINE = 64, SPIN_NS = 40000, MAX_THREADS = 1024, MAX_HOOKS = 8 };

typedef struct slot {
  /* first piece of the part that is not taken yet. May run past end */
  alignas(LINE) _Atomic int64_t next;
  int64_t end;
} slot;

typedef struct worker {
  pthread_t thread;
  ac_team *team;
  int index; /* slot */
} worker;

struct ac_team {
  alignas(LINE) _Atomic uint64_t gate;
  /* on a cache line of its own, since spinning workers read the gate's */
  alignas(LINE) _Atomic uint32_t bell; /* counts announcements. Sleeping workers wait on it */
  _Atomic uint32_t sleepers;
  alignas(LINE) _Atomic uint32_t caller_sleeps; /* the caller waits for the last worker to leave */
  _Atomic bool stop;
  _Atomic bool busy; /* one job at a time: a caller that finds it taken runs its pieces itself */

  /* the job: written while the gate is closed and no worker is inside */
  alignas(LINE) ac_range_fn fn;
  void *arg;
  int64_t n, grain;
  slot *slots;

  int n_threads; /* with the caller */
  int n_started; /* running workers. Under busy */
  bool started;  /* start was tried */
  bool spins;    /* threads have cores of their own */
  pid_t pid;     /* of the process that started the workers */
  worker *workers;
};

/* Set while a thread runs pieces: nested calls run inline. */
static _Thread_local bool inside;

bool aci_team_inside(void) { return inside; }
void aci_team_alone(void) { inside = true; }

/* ---- hooks: process-wide, only ever added ---- */
typedef void (*start_hook)(void);
static _Atomic(start_hook) hooks[MAX_HOOKS];
static _Atomic int n_hooks;

void aci_team_on_start(void (*fn)(void)) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&lock);
  int n = atomic_load(&n_hooks), i = 0;
  while (i < n && atomic_load(&hooks[i]) != fn) i++;
  if (i == n) {
    if (AC_HOLDS(n < MAX_HOOKS)) {
      atomic_store(&hooks[n], fn);
      atomic_store(&n_hooks, n + 1);
    }
  }
  pthread_mutex_unlock(&lock);
}

/* ---- waiting ---- */
static int64_t now_ns(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void futex_wait(_Atomic uint32_t *word, uint32_t seen) {
  syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int n) {
  syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* ---- pieces ---- */
static void run_slot(ac_team *t, slot *s) {
  int64_t grain = t->grain, n = t->n, end = s->end;
  while (atomic_load_explicit(&s->next, memory_order_relaxed) < end) {
    int64_t piece = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
    if (piece >= end) return;
    int64_t begin = piece * grain;
    t->fn(t->arg, begin, n - begin < grain ? n : begin + grain);
  }
}

static void run_pieces(ac_team *t, int own) {
  inside = true;
  for (int i = 0, s = own; i < t->n_threads; i++) {
    run_slot(t, &t->slots[s]);
    if (++s == t->n_threads) s = 0;
  }
  inside = false;
}

static void run_inline(int64_t n, int64_t grain, ac_range_fn fn, void *arg) {
  bool was = inside;
  inside = true;
  int64_t begin = 0;
  for (; n - begin > grain; begin += grain) fn(arg, begin, begin + grain);
  fn(arg, begin, n);
  inside = was;
}

/* ---- workers ---- */

/* Blocks until a job opens whose epoch is not `seen`. False to end the thread. */
static bool await_job(ac_team *t, uint32_t seen) {
  for (;;) {
    int64_t until = t->spins ? now_ns() + SPIN_NS : 0;
    do {
      for (int i = 0; i < 32; i++) {
        uint64_t g = atomic_load_explicit(&t->gate, memory_order_relaxed);
        if ((g & OPEN) && (uint32_t)(g >> 32) != seen) return true;
        if (atomic_load_explicit(&t->stop, memory_order_relaxed)) return false;
        aci_relax();
      }
    } while (t->spins && now_ns() < until);
    /* Park. Sequentially consistent, against announce(): either that sees the sleeper, or we see
     * its increment of the bell. */
    uint32_t bell = atomic_load(&t->bell);
    atomic_fetch_add(&t->sleepers, 1);
    uint64_t g = atomic_load(&t->gate);
    if (!((g & OPEN) && (uint32_t)(g >> 32) != seen) && !atomic_load(&t->stop))
      futex_wait(&t->bell, bell);
    atomic_fetch_sub(&t->sleepers, 1);
  }
}

static void leave(ac_team *t) {
  uint64_t g = atomic_fetch_sub(&t->gate, 1) - 1;
  if ((g & (OPEN | INSIDE)) == 0 && atomic_load(&t->caller_sleeps) != 0) {
    atomic_store(&t->caller_sleeps, 0);
    futex_wake(&t->caller_sleeps, 1);
  }
}

static void *work(void *arg) {
  worker *w = arg;
  ac_team *t = w->team;
  char name[16];
  snprintf(name, sizeof name, "accel-w%d", w->index);
  pthread_setname_np(pthread_self(), name);
  uint32_t seen = 0;
  int hooks_run = 0;
  while (await_job(t, seen)) {
    uint64_t g = atomic_load(&t->gate);
    bool entered = false;
    while ((g & OPEN) && !(entered = atomic_compare_exchange_weak(&t->gate, &g, g + 1)))
      aci_relax();
    seen = (uint32_t)(g >> 32);
    if (!entered) continue;
    for (int n = atomic_load(&n_hooks); hooks_run < n; hooks_run++)
      atomic_load (&hooks[hooks_run])();
    run_pieces(t, w->index);
    leave(t);
  }
  return NULL;
}

/* Workers take no signals of the program's. Faults stay deliverable, so that crash reports work. */
void aci_worker_signals(sigset_t *set) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
  sigfillset(set);
  for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) sigdelset(set, faults[i]);
}

/* Under busy. Fewer threads than asked for are fine: the pieces are all run. */
static void start(ac_team *t) {
  t->started = true;
  t->pid = getpid();
  sigset_t blocked, old;
  aci_worker_signals(&blocked);
  pthread_sigmask(SIG_SETMASK, &blocked, &old);
  int rc = 0;
  for (int i = 1; i < t->n_threads && rc == 0; i++) {
    worker *w = &t->workers[i];
    *w = (worker){.team = t, .index = i};
    rc = pthread_create(&w->thread, NULL, work, w);
    if (rc == 0) t->n_started++;
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (rc != 0)
    ac_log_write(AC_LOG_WARN, "base", "only %d of %d threads could be started: %s",
                 t->n_started + 1, t->n_threads, strerror(rc));
}

/* ---- the team ---- */
ac_status ac_team_new(int n_threads, ac_team **out, ac_err *e) {
  *out = NULL;
  if (n_threads < 0 || n_threads > MAX_THREADS)
    return AC_FAIL(e, INVALID, "%d threads: expected 1..%d, or 0 for every core", n_threads,
                   MAX_THREADS);
  int cpus = aci_host_cpus(), n = n_threads > 0        ? n_threads
                                  : cpus < MAX_THREADS ? cpus
                                                       : MAX_THREADS;
  ac_team *t = aligned_alloc(LINE, sizeof *t);
  slot *slots = aligned_alloc(LINE, (size_t)n * sizeof *slots);
  worker *workers = calloc((size_t)n, sizeof *workers);
  if (t == NULL || slots == NULL || workers == NULL) {
    free(t);
    free(slots);
    free(workers);
    return AC_FAIL(e, OOM, "out of memory for a team of %d threads", n);
  }
  memset(t, 0, sizeof *t);
  memset(slots, 0, (size_t)n * sizeof *slots);
  t->slots = slots;
  t->workers = workers;
  t->n_threads = n;
  t->spins = n <= cpus;
  *out = t;
  return AC_OK;
}

void ac_team_free(ac_team *t) {
  if (t == NULL) return;
  /* a forked child has the team but not its threads */
  if (t->n_started > 0 && t->pid == getpid()) {
    atomic_store(&t->stop, true);
    atomic_fetch_add(&t->bell, 1);
    futex_wake(&t->bell, INT_MAX);
    for (int i = 1; i <= t->n_started; i++) pthread_join(t->workers[i].thread, NULL);
  }
  free(t->slots);
  free(t->workers);
  free(t);
}

int ac_team_size(const ac_team *t) { return t == NULL ? 1 : t->n_threads; }

/* Fills the job, opens the gate and wakes as many sleepers as there are pieces for. Under busy. */
static void announce(ac_team *t, int64_t n, int64_t grain, int64_t n_pieces, ac_range_fn fn,
                     void *arg) {
  t->fn = fn;
  t->arg = arg;
  t->n = n;
  t->grain = grain;
  int64_t base = n_pieces / t->n_threads, rest = n_pieces % t->n_threads, first = 0;
  for (int s = 0; s < t->n_threads; s++) {
    atomic_store_explicit(&t->slots[s].next, first, memory_order_relaxed);
    first += base + (s < rest);
    t->slots[s].end = first;
  }
  uint32_t epoch = (uint32_t)(atomic_load_explicit(&t->gate, memory_order_relaxed) >> 32) + 1;
  if (epoch == 0) epoch = 1; /* 0 is the epoch that a fresh worker has seen */
  atomic_store(&t->gate, (uint64_t)epoch << 32 | OPEN);
  atomic_fetch_add(&t->bell, 1);
  if (atomic_load(&t->sleepers) > 0)
    futex_wake(&t->bell, n_pieces - 1 < INT_MAX ? (int)(n_pieces - 1) : INT_MAX);
}

/* Shuts the gate and waits for the workers inside. */
static void finish(ac_team *t) {
  if ((atomic_fetch_and(&t->gate, ~OPEN) & INSIDE) == 0) return;
  int64_t until = now_ns() + (t->spins ? SPIN_NS : 0);
  do {
    for (int i = 0; i < 32; i++) {
      if ((atomic_load(&t->gate) & INSIDE) == 0) return;
      aci_relax();
    }
  } while (now_ns() < until);
  for (;;) {
    atomic_store(&t->caller_sleeps, 1);
    if ((atomic_load(&t->gate) & INSIDE) == 0) break;
    futex_wait(&t->caller_sleeps, 1);
  }
  atomic_store(&t->caller_sleeps, 0);
}

void ac_parallel_for(ac_team *t, int64_t n, int64_t grain, ac_range_fn fn, void *arg) {
  if (n <= 0) return;
  if (grain < 1) grain = 1;
  if (n <= grain || inside || t == NULL || t->n_threads == 1 ||
      atomic_exchange_explicit(&t->busy, true, memory_order_acquire)) {
    run_inline(n, grain, fn, arg);
    return;
  }
  if (!t->started) start(t);
  announce(t, n, grain, (n - 1) / grain + 1, fn, arg);
  run_pieces(t, 0);
  finish(t);
  atomic_store_explicit(&t->busy, false, memory_order_release);
}
