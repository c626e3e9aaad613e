/* A spinlock that one thread takes nearly always and others now and then: the pool of a device. The
 * thread that holds the bias takes it with two plain stores. A locked instruction would wait until
 * all earlier stores have left for the caches, 25 ns in a loop of small ops. Another thread takes
 * the bias away first, by a barrier in all threads of the process (membarrier). Without membarrier
 * it is a plain spinlock. Only one thread ever has the bias of a lock, so `inside` has one writer.
 * A second one could resume after it has lost its bias and clear the flag of the present holder.
 * Known as biased locking: Dice, Moir, Scherer, "Quickly reacquirable locks" (2003). */
#ifndef ACI_BIASED_H
#define ACI_BIASED_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct aci_biased {
  _Atomic uintptr_t owner; /* the owner of the bias, or 0: no thread */
  _Atomic bool inside;     /* the owner has the lock. Written by home alone */
  _Atomic bool taken;      /* a thread other than the owner has the lock */
  /* under taken: the thread that may have the bias. The last thread that had the lock, and how
   * often in a row */
  uintptr_t home, last;
  uint32_t streak;
} aci_biased;

/* its address names the thread */
extern _Thread_local __attribute__((tls_model("initial-exec"))) char aci_biased_me;

void aci_biased_wait(aci_biased *l);

/* Pass the result to aci_biased_unlock. Not recursive. */
static inline bool aci_biased_lock(aci_biased *l) {
  const uintptr_t me = (uintptr_t)&aci_biased_me;
  if (__builtin_expect(atomic_load_explicit(&l->owner, memory_order_relaxed) == me, 1)) {
    atomic_store_explicit(&l->inside, true, memory_order_relaxed);
    /* the processor's fence is the other side's membarrier */
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&l->owner, memory_order_acquire) == me, 1))
      return true;
    atomic_store_explicit(&l->inside, false, memory_order_release);
  }
  aci_biased_wait(l);
  return false;
}

static inline void aci_biased_unlock(aci_biased *l, bool as_owner) {
  if (as_owner) atomic_store_explicit(&l->inside, false, memory_order_release);
  else atomic_store_explicit(&l->taken, false, memory_order_release);
}

#endif
