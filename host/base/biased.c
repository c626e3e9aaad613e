/* The slow side of biased.h: others than the owner, and who gets the bias. */
#include "base/biased.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "base/relax.h"

#ifdef __linux__
#include <linux/membarrier.h>
#include <sys/syscall.h>
#endif

enum { STREAK = 256 }; /* taking the bias away costs some microseconds */

_Thread_local __attribute__((tls_model("initial-exec"))) char aci_biased_me;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool available;

#ifdef __linux__
static bool membarrier(int cmd) { return syscall(SYS_membarrier, cmd, 0, 0) == 0; }
static void ask(void) { available = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED); }

/* A barrier on all threads: each sees the stores that this one made before it, and this one sees
 * theirs. */
static void barrier_everywhere(void) {
  if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return;
  if (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
      membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
    return;
  /* forbidden since: stores leave a core in far less */
  nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  atomic_thread_fence(memory_order_seq_cst);
}
#else
static void ask(void) { available = false; }
static void barrier_everywhere(void) {}
#endif

static void spin(const _Atomic bool *flag) {
  for (int spins = 0; atomic_load_explicit(flag, memory_order_acquire);) {
    aci_relax();
    /* the holder may have lost its core, or be mapping memory */
    if (++spins % 128 == 0) sched_yield();
  }
}

void aci_biased_wait(aci_biased *l) {
  const uintptr_t me = (uintptr_t)&aci_biased_me;
  while (atomic_exchange_explicit(&l->taken, true, memory_order_acquire)) spin(&l->taken);
  if (atomic_load_explicit(&l->owner, memory_order_relaxed) != 0) {
    atomic_store_explicit(&l->owner, 0, memory_order_relaxed);
    barrier_everywhere();
    spin(&l->inside);
  }
  l->streak = l->last == me ? l->streak + 1 : 0;
  l->last = me;
  if (l->streak < STREAK || (l->home != 0 && l->home != me)) return;
  pthread_once(&once, ask);
  if (!available) return;
  l->home = me; /* for good. The opener of a device need not be its user */
  l->streak = 0;
  atomic_store_explicit(&l->owner, me, memory_order_relaxed); /* from the next time on */
}
