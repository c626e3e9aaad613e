/* Plans of the module accel_onednn.so, products' and convolutions' in one cache: primitives take
 * 0.2 to 10 ms to make. A plan is found by its kind and the bytes of its whole shape. When the
 * cache is full, it drops the least recently used plan that has no holder. Called by onednn.c and
 * onednn_conv.c. */
#include <pthread.h>

#include "device/cpu/onednn_module.h"

enum { BUCKETS = 256, MAX_PLANS = 1024 };

/* guards all below, and the making of plans */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static aci_dnnl_plan *buckets[BUCKETS];
static int n_plans;
static uint64_t clock_now;

static void *shape_of(const aci_dnnl_plan *p) { return (char *)(uintptr_t)p + p->kind->shape_at; }

_Static_assert(sizeof(aci_onednn_shape) == 8 * 8 + 4 * 4 &&
                   sizeof(aci_onednn_conv_shape) == 22 * 8 + 4 * 4,
               "shapes have no padding");

/* shape_bytes is a multiple of 8. */
static uint64_t hash(const aci_dnnl_kind *kind, const void *shape) {
  uint64_t h = kind->shape_bytes;
  for (size_t at = 0; at < kind->shape_bytes; at += 8) {
    uint64_t v;
    memcpy(&v, (const char *)shape + at, 8);
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    h ^= h >> 29;
  }
  return h;
}

static void evict_one(void) {
  aci_dnnl_plan **oldest = NULL;
  for (int i = 0; i < BUCKETS; i++)
    for (aci_dnnl_plan **at = &buckets[i]; *at != NULL; at = &(*at)->next)
      if ((*at)->refs == 0 && (oldest == NULL || (*at)->used < (*oldest)->used)) oldest = at;
  if (oldest == NULL) return;
  aci_dnnl_plan *gone = *oldest;
  *oldest = gone->next;
  n_plans--;
  gone->kind->free(gone);
  free(gone);
}

static aci_dnnl_plan *make(const aci_dnnl_kind *kind, const void *shape, aci_dnnl_plan **bucket) {
  if (n_plans >= MAX_PLANS) evict_one();
  aci_dnnl_plan *p = calloc(1, kind->plan_bytes);
  if (p == NULL) return NULL;
  p->kind = kind;
  memcpy(shape_of(p), shape, kind->shape_bytes);
  const int threads = aci_dnnl_alone_begin();
  p->failed = !kind->make(p);
  aci_dnnl_alone_end(threads);
  p->next = *bucket;
  *bucket = p;
  n_plans++;
  return p;
}

const aci_onednn_plan *aci_dnnl_get(const aci_dnnl_kind *kind, const void *shape) {
  aci_dnnl_plan **bucket = &buckets[hash(kind, shape) % BUCKETS], *p;
  pthread_mutex_lock(&lock);
  for (p = *bucket; p != NULL; p = p->next)
    if (p->kind == kind && memcmp(shape_of(p), shape, kind->shape_bytes) == 0) break;
  if (p == NULL) p = make(kind, shape, bucket);
  if (p != NULL) p->used = ++clock_now;
  if (p != NULL && !p->failed) p->refs++;
  else p = NULL;
  pthread_mutex_unlock(&lock);
  return p == NULL ? NULL : &p->pub;
}

void aci_dnnl_put(const aci_onednn_plan *pub) {
  aci_dnnl_plan *p = (aci_dnnl_plan *)(void *)(uintptr_t)pub;
  pthread_mutex_lock(&lock);
  p->refs--;
  pthread_mutex_unlock(&lock);
}
