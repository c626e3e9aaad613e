/* Storages whose bytes are in a device's memory while they are used and have their home elsewhere.
 * See offload.h. */
#include <stdlib.h>

#include "offload/offload.h"
#include "offload/window.h"
#include "tensor/tensor_impl.h"

static ac_status acquire(ac_storage *s, void **ptr, ac_err *e) {
  aci_tiered *t = s->impl;
  aci_io_queue *q = t->window->queue;
  pthread_mutex_lock(&q->lock);
  const ac_status st = aci_window_use(t->window, t, e);
  if (st == AC_OK) *ptr = t->ptr;
  pthread_mutex_unlock(&q->lock);
  return st;
}

static void release(ac_storage *s, bool written) {
  aci_tiered *t = s->impl;
  aci_io_queue *q = t->window->queue;
  pthread_mutex_lock(&q->lock);
  if (!AC_HOLDS(t->pins > 0)) {
    pthread_mutex_unlock(&q->lock);
    return;
  }
  t->pins--;
  const bool held = t->in_place && t->map != NULL;
  t->dirty |= written && (held || !t->in_place); /* bytes written at home are already there */
  if (t->pins == 0) {
    s->ptr = NULL; /* nobody caches pointers */
    if (held && t->dirty) aci_resident_own(t->window, t);
    if (held) aci_map_drop(t->home.store);
  }
  pthread_mutex_unlock(&q->lock);
}

static void free_tiered(ac_storage *s) {
  aci_tiered *t = s->impl;
  aci_window *w = t->window;
  pthread_mutex_lock(&w->queue->lock);
  aci_window_remove(w, t);
  pthread_mutex_unlock(&w->queue->lock);
  aci_home_free(&t->home);
  free(t);
  aci_window_release(w);
}

static const ac_provider providers[ACI_TIERS] = {
    {sizeof(ac_provider), "host", acquire, release, free_tiered},
    {sizeof(ac_provider), "file", acquire, release, free_tiered},
};

aci_tiered *aci_tiered_of(const ac_storage *s) {
  return s != NULL && (s->provider == &providers[0] || s->provider == &providers[1]) ? s->impl
                                                                                     : NULL;
}

/* Takes over the home, also on failure. */
static ac_status make(aci_window *w, aci_home home, ac_storage **out, ac_err *e) {
  aci_tiered *t = calloc(1, sizeof *t);
  ac_status st = t != NULL ? AC_OK : AC_FAIL(e, OOM, "no memory for a storage's head");
  *out = NULL;
  if (st == AC_OK) {
    t->window = w;
    t->home = home;
    pthread_mutex_lock(&w->queue->lock);
    st = aci_window_add(w, t, e);
    pthread_mutex_unlock(&w->queue->lock);
  }
  if (st == AC_OK) {
    st = ac_storage_provided(w->device, home.bytes, &providers[home.store->tier], t, out, e);
    if (st == AC_OK) {
      aci_window_retain(w);
      return AC_OK;
    }
    pthread_mutex_lock(&w->queue->lock);
    aci_window_remove(w, t);
    pthread_mutex_unlock(&w->queue->lock);
  }
  free(t);
  aci_home_free(&home);
  return st;
}

ac_status aci_tiered_new(aci_window *w, aci_store *s, size_t bytes, ac_storage **out, ac_err *e) {
  aci_home home;
  *out = NULL;
  AC_TRY(aci_home_new(s, bytes, &home, e));
  return make(w, home, out, e);
}

ac_status aci_tiered_open(aci_window *w, aci_store *s, uint64_t at, size_t bytes, ac_storage **out,
                          ac_err *e) {
  aci_home home;
  *out = NULL;
  AC_TRY(aci_home_at(s, at, bytes, &home, e));
  return make(w, home, out, e);
}

ac_status aci_tiered_move(aci_tiered *t, bool write, size_t at, size_t n, void *p, aci_transfer *x,
                          ac_err *e) {
  aci_io_queue *q = t->window->queue;
  if (at > t->home.bytes || n > t->home.bytes - at)
    return AC_FAIL(e, INVALID, "bytes %zu .. %zu of %zu", at, at + n, t->home.bytes);
  if (write && t->home.store->fixed)
    return AC_FAIL(e, INVALID, "%s is read-only", t->home.store->path);
  pthread_mutex_lock(&q->lock);
  const ac_status st = aci_window_out(t->window, t, e);
  if (st == AC_OK) {
    *x = (aci_transfer){.home = &t->home, .p = p, .at = at, .bytes = n, .write = write};
    aci_io_queue_send(q, x, false);
  }
  pthread_mutex_unlock(&q->lock);
  return st;
}
