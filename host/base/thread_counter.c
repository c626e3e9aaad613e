/* The list of all threads' counters and their sum. See thread_counter.h. */
#include "base/thread_counter.h"

#include <pthread.h>
#include <stddef.h>

_Thread_local __attribute__((tls_model("initial-exec"))) aci_thread_counter aci_thread_counter_mine;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static aci_thread_counter *threads;
static _Atomic int64_t others; /* of threads that ended, or that could not be linked */

/* The end of a thread. If the thread counts again after this, it is linked anew, and this function
 * runs once more. */
static void leave(void *p) {
  aci_thread_counter *t = p;
  pthread_mutex_lock(&lock);
  if (t->prev != NULL) t->prev->next = t->next;
  else threads = t->next;
  if (t->next != NULL) t->next->prev = t->prev;
  atomic_fetch_add(&others, atomic_load(&t->n));
  pthread_mutex_unlock(&lock);
  atomic_store(&t->n, 0);
  t->linked = false;
}
/* A forked child has the counts of the other threads without the threads, whose stacks it uses
 * again. */
static void before_fork(void) { pthread_mutex_lock(&lock); }
static void in_parent(void) { pthread_mutex_unlock(&lock); }
static void in_child(void) {
  aci_thread_counter *mine = &aci_thread_counter_mine;
  for (const aci_thread_counter *t = threads; t != NULL; t = t->next)
    if (t != mine) atomic_fetch_add(&others, atomic_load(&t->n));
  threads = mine->linked ? mine : NULL;
  mine->prev = mine->next = NULL;
  pthread_mutex_unlock(&lock);
}

static void make_key(void) {
  pthread_key_create(&key, leave);
  pthread_atfork(before_fork, in_parent, in_child);
}

void aci_thread_counter_first(int64_t d) {
  aci_thread_counter *t = &aci_thread_counter_mine;
  pthread_once(&once, make_key);
  if (pthread_setspecific(key, t) != 0) {
    atomic_fetch_add(&others, d);
    return;
  }
  atomic_store(&t->n, d);
  pthread_mutex_lock(&lock);
  t->prev = NULL;
  t->next = threads;
  if (threads != NULL) threads->prev = t;
  threads = t;
  pthread_mutex_unlock(&lock);
  t->linked = true;
}

int64_t aci_thread_counter_sum(void) {
  pthread_mutex_lock(&lock);
  int64_t n = atomic_load(&others);
  for (const aci_thread_counter *t = threads; t != NULL; t = t->next)
    n += atomic_load_explicit(&t->n, memory_order_relaxed);
  pthread_mutex_unlock(&lock);
  return n;
}
