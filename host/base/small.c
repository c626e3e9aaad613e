/* Free lists of small objects. See small.h. */
#include "base/small.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

enum { STEP = 32, CLASSES = 24, ACI_SMALL_KEEP = 4096 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PLAIN_MALLOC 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define PLAIN_MALLOC 1
#endif
#endif

#ifdef PLAIN_MALLOC
void *aci_small_alloc(size_t bytes) { return malloc(bytes); }
void aci_small_free(void *p, size_t bytes) {
  (void)bytes;
  free(p);
}
#else

typedef struct item {
  struct item *next;
} item;

typedef struct lists {
  item *head[CLASSES];
  int n[CLASSES];
  bool registered;
} lists;

/* initial-exec: one load instead of a call. Small enough for the room that the loader keeps for
 * modules. */
static _Thread_local __attribute__((tls_model("initial-exec"))) lists mine;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A thread that ends gives its lists back. */
static void drain(void *p) {
  lists *l = p;
  for (int c = 0; c < CLASSES; c++)
    while (l->head[c] != NULL) {
      item *i = l->head[c];
      l->head[c] = i->next;
      free(i);
    }
}
static void make_key(void) { pthread_key_create(&key, drain); }

static __attribute__((noinline)) void keep(lists *l, void *p, size_t c) {
  if (l->n[c] >= ACI_SMALL_KEEP) {
    free(p);
    return;
  }
  if (!l->registered) {
    pthread_once(&once, make_key);
    l->registered = pthread_setspecific(key, l) == 0;
    if (!l->registered) {
      free(p);
      return;
    }
  }
  item *i = p;
  i->next = l->head[c];
  l->head[c] = i;
  l->n[c]++;
}

void *aci_small_alloc(size_t bytes) {
  size_t c = (bytes + STEP - 1) / STEP;
  if (c >= CLASSES) return malloc(bytes);
  lists *l = &mine;
  item *i = l->head[c];
  if (i == NULL) return malloc(c * STEP);
  l->head[c] = i->next;
  l->n[c]--;
  return i;
}

void aci_small_free(void *p, size_t bytes) {
  size_t c = (bytes + STEP - 1) / STEP;
  if (p == NULL) return;
  if (c >= CLASSES) {
    free(p);
    return;
  }
  lists *l = &mine;
  if (__builtin_expect(l->registered && l->n[c] < ACI_SMALL_KEEP, 1)) {
    item *i = p;
    i->next = l->head[c];
    l->head[c] = i;
    l->n[c]++;
  } else {
    keep(l, p, c);
  }
}
#endif
