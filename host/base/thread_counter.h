/* How many objects of one kind are alive in the process, counted per thread so that counting needs
 * no locked instruction: an object may die in another thread than the one that made it, only the
 * sum means something. For the heads of tensors. */
#ifndef ACI_THREAD_COUNTER_H
#define ACI_THREAD_COUNTER_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct aci_thread_counter {
  _Atomic int64_t n; /* written by its thread alone */
  bool linked;       /* in the list that the sum walks */
  struct aci_thread_counter *prev, *next;
} aci_thread_counter;

/* initial-exec: one load instead of a call. */
extern _Thread_local __attribute__((tls_model("initial-exec")))
aci_thread_counter aci_thread_counter_mine;

void aci_thread_counter_first(int64_t d);
static inline void aci_thread_counter_add(int64_t d) {
  aci_thread_counter *t = &aci_thread_counter_mine;
  if (__builtin_expect(!t->linked, 0)) aci_thread_counter_first(d);
  else
    atomic_store_explicit(&t->n, atomic_load_explicit(&t->n, memory_order_relaxed) + d,
                          memory_order_relaxed);
}
/* Over all threads, those that ended included. */
int64_t aci_thread_counter_sum(void);

#endif
