/* Scratch of kernels: a few buffers per thread that grow to the largest request and are freed with
 * the thread, so that steady state makes no system allocations. Called by the matrix product and by
 * attention. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "device/cpu/gemm_impl.h"

typedef struct scratch {
  void *p[ACI_SCRATCH_SLOTS];
  size_t bytes[ACI_SCRATCH_SLOTS];
  bool known; /* to the thread-exit destructor */
} scratch;

static _Thread_local scratch mine;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool have_key;
static _Atomic size_t total;

static void drop(void *arg) {
  scratch *s = arg;
  for (int i = 0; i < ACI_SCRATCH_SLOTS; i++) {
    free(s->p[i]);
    atomic_fetch_sub_explicit(&total, s->bytes[i], memory_order_relaxed);
    s->p[i] = NULL;
    s->bytes[i] = 0;
  }
  s->known = false;
}

static void make_key(void) { have_key = pthread_key_create(&key, drop) == 0; }

/* The library may be unloaded before its threads end: then the destructor must not be called any
 * more. */
static __attribute__((destructor)) void unload(void) {
  drop(&mine);
  if (have_key) pthread_key_delete(key);
  have_key = false;
}

void *aci_scratch(aci_scratch_slot slot, size_t bytes) {
  scratch *s = &mine;
  if (__builtin_expect(bytes <= s->bytes[slot], 1)) return s->p[slot];
  pthread_once(&once, make_key);
  if (!s->known && have_key) s->known = pthread_setspecific(key, s) == 0;
  size_t want = (bytes + bytes / 4 + 4095) / 4096 * 4096;
  void *p = aligned_alloc(64, want);
  if (p == NULL) return NULL;
  free(s->p[slot]);
  atomic_fetch_add_explicit(&total, want - s->bytes[slot], memory_order_relaxed);
  s->p[slot] = p;
  s->bytes[slot] = want;
  return p;
}

size_t aci_scratch_bytes(void) { return atomic_load_explicit(&total, memory_order_relaxed); }
