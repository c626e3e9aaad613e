/* Calls of the rank's own thread to the service, at its steps and at a prompt. Called by the
 * bindings. attach.c describes the ownership of fields. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "attach/attach_impl.h"

#define SECOND ((int64_t)1000000000)

unsigned ac_attach_step(ac_attach *a, uint64_t step) {
  atomic_store(&a->step, step);
  uint64_t at = atomic_load(&a->pause_at);
  unsigned what = 0;
  /* taken, so that it cannot be withdrawn any more: the client learns which of the two came
   * first */
  if (at != 0 && step >= at && atomic_compare_exchange_strong(&a->pause_at, &at, 0))
    what = AC_ATTACH_PAUSE;
  if (atomic_load_explicit(&a->gone, memory_order_relaxed) && atomic_exchange(&a->gone, false))
    what |= AC_ATTACH_GONE;
  return what;
}

bool ac_attach_stand(ac_attach *a, int *fd) {
  *fd = -1;
  if (atomic_load(&a->owner) == 0 || a->process != getpid()) return false;
  atomic_store(&a->standing, true);
  atomic_store(&a->pause_at, 0);
  *fd = aci_attach_take_parked(a, -1);
  if (*fd < 0) return true;
  a->held = atomic_load(&a->owner);
  atomic_store(&a->gone, false); /* of the client before this one */
  aci_attach_wake(a);            /* its slot is free */
  return true;
}

void ac_attach_go(ac_attach *a, bool keep) {
  atomic_store(&a->standing, false);
  if (keep) {
    /* it ended while we stood */
    if (atomic_load(&a->owner) != a->held) atomic_store(&a->gone, true);
    return;
  }
  atomic_store(&a->gone, false);
  aci_attach_disown(a, a->held);
}

/* An interrupt is sent under the lock, so that one is on its way to this thread when we have it,
 * and arrives before a system call that we make then returns. */
void ac_attach_interruptible(ac_attach *a, bool on) {
  pthread_mutex_lock(&a->lock);
  a->interruptible = on;
  pthread_mutex_unlock(&a->lock);
  if (!on) syscall(SYS_gettid);
}

void ac_attach_pause_at(ac_attach *a, uint64_t step) { atomic_store(&a->pause_at, step); }

bool ac_attach_has_prompt(const ac_attach *a) { return atomic_load(&a->owner) != 0; }

bool ac_attach_wait(ac_attach *a, double seconds) {
  struct timespec end;
  if (a->process != getpid()) return false;
  clock_gettime(CLOCK_MONOTONIC, &end);
  const int64_t at = (int64_t)end.tv_sec * SECOND + end.tv_nsec + (int64_t)(seconds * 1e9);
  end = (struct timespec){.tv_sec = at / SECOND, .tv_nsec = at % SECOND};
  pthread_mutex_lock(&a->lock);
  while (a->prompt_fd < 0) {
    const int late = seconds < 0 ? pthread_cond_wait(&a->came, &a->lock)
                                 : pthread_cond_timedwait(&a->came, &a->lock, &end);
    if (late != 0) break;
  }
  const bool found = a->prompt_fd >= 0;
  pthread_mutex_unlock(&a->lock);
  return found;
}
