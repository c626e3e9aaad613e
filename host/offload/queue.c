/* The one I/O thread: transfers in the order in which they were sent, those that somebody waits for
 * first. See offload.h. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base_impl.h"
#include "offload/offload.h"
#include "tensor/tensor_impl.h"

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* With the lock held. */
static void tell(const aci_io_queue *q, const aci_transfer *t, aci_io_event what, uint64_t begin,
                 uint64_t end) {
  if (q->watch != NULL)
    q->watch->on_event(q->watch->user, what, t->home->store->tier, t->bytes, (int64_t)begin,
                       (int64_t)end);
}

void aci_io_queue_watch(aci_io_queue *q, const aci_io_watch *watch) {
  pthread_mutex_lock(&q->lock);
  q->watch = watch;
  pthread_mutex_unlock(&q->lock);
}

/* Without the lock. */
static void carry_out(aci_io_queue *q, aci_transfer *t) {
  aci_home *h = t->home;
  if (h->store->phantom || t->st != AC_OK) return;
  if (t->map != NULL) {
    t->st = aci_map_fill(h->store, t->map, t->map_bytes, h->at + h->bytes, &t->err);
  } else if (h->store->tier == ACI_TIER_FILE) {
    t->st = aci_mover_run(&q->mover, h->store, t->write, t->p, t->bytes, h->at + t->at, t->slack,
                          &t->err);
  } else if (t->bytes > 0) {
    char *there = (char *)ac_block_ptr(h->block) + t->at;
    aci_copy_streamed(t->write ? there : t->p, t->write ? t->p : there, t->bytes);
  }
  if (!t->write && t->lane != NULL && t->st == AC_OK)
    t->st = aci_lane_up(t->lane, t->p, t->bytes, &t->err);
}

/* Takes the first transfer that can begin: bytes that a device has not written yet do not block the
 * others. With the lock held. */
static aci_transfer *take(aci_io_queue *q) {
  for (aci_transfer **at = &q->first, *t; (t = *at) != NULL; at = &t->next) {
    bool begins = true;
    t->st = t->write && t->lane != NULL ? aci_lane_down(t->lane, &begins, &t->err) : AC_OK;
    if (!begins && t->st == AC_OK) continue;
    *at = t->next;
    if (t->next == NULL) q->last = at;
    t->next = NULL;
    return t;
  }
  return NULL;
}

static void *run(void *arg) {
  aci_io_queue *q = arg;
  const struct timespec nap = {0, 20000};
  pthread_mutex_lock(&q->lock);
  for (;;) {
    while (q->first == NULL && !q->stop) pthread_cond_wait(&q->wake, &q->lock);
    if (q->first == NULL) break;
    aci_transfer *t = take(q);
    if (t == NULL) { /* a device rings nobody */
      pthread_mutex_unlock(&q->lock);
      nanosleep(&nap, NULL);
      pthread_mutex_lock(&q->lock);
      continue;
    }
    t->state = ACI_MOVING;
    pthread_mutex_unlock(&q->lock);
    const uint64_t from = now_ns();
    carry_out(q, t);
    const uint64_t spent = now_ns() - from;
    pthread_mutex_lock(&q->lock);
    aci_store *s = t->home->store;
    s->busy_ns += spent;
    tell(q, t, t->write ? ACI_IO_WRITE : ACI_IO_READ, from, from + spent);
    if (t->st == AC_OK) {
      s->bytes[t->write] += t->bytes;
      s->calls[t->write]++;
    }
    t->state = ACI_DONE;
    pthread_cond_broadcast(&q->done);
  }
  pthread_mutex_unlock(&q->lock);
  return NULL;
}

ac_status aci_io_queue_new(aci_io_queue **out, ac_err *e) {
  aci_io_queue *q = calloc(1, sizeof *q);
  *out = NULL;
  if (q == NULL) return AC_FAIL(e, OOM, "no memory for a queue");
  q->ref = 1;
  q->last = &q->first;
  pthread_mutex_init(&q->lock, NULL);
  pthread_cond_init(&q->wake, NULL);
  pthread_cond_init(&q->done, NULL);
  aci_mover_init(&q->mover);
  q->no_map = !aci_params_flag("ACCEL_MAP_WEIGHTS", true);
  sigset_t all, was; /* signals are for the thread that runs the script */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &was);
  const int rc = pthread_create(&q->thread, NULL, run, q);
  pthread_sigmask(SIG_SETMASK, &was, NULL);
  if (rc != 0) {
    free(q);
    return AC_FAIL(e, OOM, "cannot start the I/O thread: %s", strerror(rc));
  }
  *out = q;
  return AC_OK;
}

void aci_io_queue_retain(aci_io_queue *q) {
  atomic_fetch_add_explicit(&q->ref, 1, memory_order_relaxed);
}

void aci_io_queue_release(aci_io_queue *q) {
  if (q == NULL || !aci_unref(&q->ref)) return;
  pthread_mutex_lock(&q->lock);
  q->stop = true;
  pthread_cond_signal(&q->wake);
  pthread_mutex_unlock(&q->lock);
  pthread_join(q->thread, NULL);
  aci_mover_fini(&q->mover);
  pthread_cond_destroy(&q->wake);
  pthread_cond_destroy(&q->done);
  pthread_mutex_destroy(&q->lock);
  free(q);
}

void aci_io_queue_send(aci_io_queue *q, aci_transfer *t, bool urgent) {
  /* it is under way, and is waited for as it is */
  if (!AC_HOLDS(t->state == ACI_NOT_SENT || t->state == ACI_DONE)) return;
  t->state = ACI_SENT;
  if (urgent) {
    t->next = q->first;
    if (q->first == NULL) q->last = &t->next;
    q->first = t;
  } else {
    t->next = NULL;
    *q->last = t;
    q->last = &t->next;
  }
  pthread_cond_signal(&q->wake);
}

bool aci_io_queue_cancel(aci_io_queue *q, aci_transfer *t) {
  if (t->state != ACI_SENT) return t->state == ACI_NOT_SENT;
  aci_transfer **at = &q->first;
  while (*at != t) at = &(*at)->next;
  *at = t->next;
  if (t->next == NULL) q->last = at;
  t->state = ACI_NOT_SENT;
  return true;
}

void aci_io_queue_hurry(aci_io_queue *q, aci_transfer *t) {
  if (t->state != ACI_SENT || q->first == t) return;
  aci_io_queue_cancel(q, t);
  aci_io_queue_send(q, t, true);
}

void aci_io_queue_wait(aci_io_queue *q, aci_transfer *t) {
  if (t->state != ACI_SENT && t->state != ACI_MOVING) return;
  const uint64_t from = now_ns();
  while (t->state == ACI_SENT || t->state == ACI_MOVING) pthread_cond_wait(&q->done, &q->lock);
  tell(q, t, ACI_IO_WAIT, from, now_ns());
}
