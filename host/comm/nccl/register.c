/* Segments of the device's pool that communicators know (nccl.h). A segment is registered when a
 * collective of a communicator first uses it, and deregistered before its memory goes to the
 * system, so memory that every step uses is registered once. If NCCL refuses, transfers use its own
 * buffers. */
#include <stdlib.h>

#include "comm/nccl/nccl.h"

typedef struct aci_nccl_segment {
  struct aci_nccl_segment *next;
  void *base, *handle;
  size_t bytes;
} aci_nccl_segment;

/* The list position of p's segment. *NULL: unknown segment. */
static aci_nccl_segment **find(struct aci_nccl_group *x, const void *p) {
  aci_nccl_segment **at = &x->registered;
  while (*at != NULL && (size_t)((const char *)p - (const char *)(*at)->base) >= (*at)->bytes)
    at = &(*at)->next;
  return at;
}

/* Called with the lock. x has a communicator, and the segment is not known to it. */
static void add(aci_nccl *n, struct aci_nccl_group *x, void *base, size_t bytes) {
  aci_nccl_segment *s = malloc(sizeof *s);
  if (s == NULL) return;
  *s = (aci_nccl_segment){x->registered, base, NULL, bytes};
  const int status = n->lib->ncclCommRegister(x->comm, base, bytes, &s->handle);
  if (status == ACI_NCCL_SUCCESS) {
    x->registered = s;
    return;
  }
  free(s);
  n->registers = false;
  ac_log_write(AC_LOG_WARN, "comm",
               "%s: NCCL registers no memory, its transfers go through buffers of its own: %s",
               n->device->name, n->lib->ncclGetErrorString(status));
}

void aci_nccl_register(aci_nccl *n, struct aci_nccl_group *x, const void *p) {
  void *base;
  size_t bytes;
  if (p == NULL || n->lib->ncclCommRegister == NULL || n->lib->ncclCommDeregister == NULL) return;
  pthread_mutex_lock(&n->lock);
  const bool fresh = n->registers && *find(x, p) == NULL;
  pthread_mutex_unlock(&n->lock);
  /* the pool's lock is never taken with ours */
  if (!fresh || !aci_pool_segment(n->device, p, &base, &bytes)) return;
  pthread_mutex_lock(&n->lock);
  if (n->registers && !n->broken && x->comm != NULL && *find(x, base) == NULL)
    add(n, x, base, bytes);
  pthread_mutex_unlock(&n->lock);
}

/* Called with the lock. */
static void drop(aci_nccl *n, struct aci_nccl_group *x, aci_nccl_segment **at) {
  aci_nccl_segment *s = *at;
  *at = s->next;
  if (!n->broken && x->comm != NULL) n->lib->ncclCommDeregister(x->comm, s->handle);
  free(s);
}

void aci_nccl_unregister(aci_nccl *n, struct aci_nccl_group *x) {
  pthread_mutex_lock(&n->lock);
  while (x->registered != NULL) drop(n, x, &x->registered);
  pthread_mutex_unlock(&n->lock);
}

/* Under the pool's lock: nobody uses the segment any more, but for kernels that are queued. */
static void unmapped(void *user, void *base, size_t bytes) {
  aci_nccl *n = user;
  (void)bytes;
  pthread_mutex_lock(&n->lock);
  for (;;) {
    struct aci_nccl_group *x = n->groups;
    while (x != NULL && *find(x, base) == NULL) x = x->next;
    if (x == NULL) break;
    ac_stream *s = x->stream != NULL ? x->stream : n->stream;
    pthread_mutex_unlock(&n->lock);
    /* without our lock: the watch ends hanging operations */
    n->device->vt->sync(n->device, s, NULL);
    pthread_mutex_lock(&n->lock);
    aci_nccl_segment **at = NULL;
    /* it may have been closed meanwhile */
    for (struct aci_nccl_group *y = n->groups; y != NULL; y = y->next)
      if (y == x && *(at = find(x, base)) != NULL) drop(n, x, at);
  }
  pthread_mutex_unlock(&n->lock);
}

void aci_nccl_register_open(aci_nccl *n) {
  n->registers = ac_params_int(ac_ctx_params(n->world->ctx), "NCCL_REGISTER") != 0;
  n->unmap = (aci_unmap_hook){.fn = unmapped, .user = n};
  aci_pool_add_unmap_hook(n->device, &n->unmap);
}

void aci_nccl_register_close(aci_nccl *n) { aci_pool_remove_unmap_hook(n->device, &n->unmap); }
