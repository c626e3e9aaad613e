/* The communication stream of a world, its events, and the thread that watches queued operations
 * (nccl.h).
 *
 * The thread sleeps while nothing is queued. Otherwise it checks every few milliseconds: the oldest
 * event, NCCL's own errors, the job's abort, the time. When one of these ends the job it aborts all
 * communicators: their kernels give up, streams continue, and the next caller gets the reason. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/nccl/nccl.h"
#include "comm/wait.h"
#include "device/device_impl.h"

#define MS ((int64_t)1000000)
enum { LOOK_MS = 5, ERRORS_EVERY = 20 };

ac_status aci_nccl_check(const aci_nccl *n, int status, const char *what, ac_err *e) {
  if (status == ACI_NCCL_SUCCESS || status == ACI_NCCL_IN_PROGRESS) return AC_OK;
  return AC_FAIL(e, DEVICE, "%s: %s: %s", n->device->name, what,
                 n->lib->ncclGetErrorString(status));
}

/* ---- events ---- */

ac_status aci_nccl_event(aci_nccl *n, ac_event **out, ac_err *e) {
  pthread_mutex_lock(&n->lock);
  *out = n->n_spare > 0 ? n->spare[--n->n_spare] : NULL;
  pthread_mutex_unlock(&n->lock);
  return *out != NULL ? AC_OK : n->device->vt->event_new(n->device, out, e);
}

void aci_nccl_event_back(aci_nccl *n, ac_event *ev) {
  if (ev == NULL) return;
  pthread_mutex_lock(&n->lock);
  const bool room = n->n_spare < (int)(sizeof n->spare / sizeof n->spare[0]);
  if (room) n->spare[n->n_spare++] = ev;
  pthread_mutex_unlock(&n->lock);
  if (!room) n->device->vt->event_free(n->device, ev);
}

void aci_device_op_release(aci_device_op *op) {
  if (op == NULL || atomic_fetch_sub(&op->ref, 1) != 1) return;
  aci_nccl *n = op->nccl;
  aci_nccl_event_back(n, op->done);
  free(op);
  aci_nccl_release(n);
}

ac_status aci_nccl_op_new(aci_nccl *n, const aci_desc *d, aci_device_op **out, ac_err *e) {
  aci_device_op *op = malloc(sizeof *op);
  *out = NULL;
  if (op == NULL) return AC_FAIL(e, OOM, "no memory for a collective");
  *op = (aci_device_op){
      .ref = 2, .nccl = n, .desc = *d, .began = aci_now_ns()}; /* the caller's and the watch's */
  const ac_status st = aci_nccl_event(n, &op->done, e);
  if (st != AC_OK) return free(op), st;
  atomic_fetch_add(&n->ref, 1);
  return *out = op, AC_OK;
}

void aci_nccl_op_drop(aci_device_op *op) {
  if (op == NULL) return;
  aci_device_op_release(op);
  aci_device_op_release(op);
}

ac_status aci_device_op_join(aci_device_op *op, ac_err *e) {
  ac_device *d = op->nccl->device;
  return d->vt->stream_wait(d, NULL, op->done, e);
}

bool aci_device_op_done(aci_device_op *op) {
  ac_device *d = op->nccl->device;
  bool done = false;
  return d->vt->event_query(d, op->done, &done, NULL) != AC_OK || done;
}

/* ---- the thread ---- */

/* Called with the lock. Communicators stay in their groups, which are closed later. */
static void give_up(aci_nccl *n) {
  if (n->broken) return;
  n->broken = true;
  for (struct aci_nccl_group *g = n->groups; g != NULL; g = g->next)
    if (g->comm != NULL) n->lib->ncclCommAbort(g->comm), g->comm = NULL;
}

/* Checks the oldest operation: finished, or an end of the job. */
static void look(aci_nccl *n, bool errors) {
  aci_device_op *op = n->queued;
  ac_world *w = n->world;
  ac_err e;
  bool done = false;
  /* the device is lost */
  if (n->device->vt->event_query(n->device, op->done, &done, &e) != AC_OK) {
    aci_stop(w, AC_DEVICE, w->place.rank, &e, "rank %d: %s", w->place.rank, e.msg);
    done = true;
  }
  if (done) {
    n->queued = op->next;
    pthread_mutex_unlock(&n->lock);
    aci_device_op_release(op);
    pthread_mutex_lock(&n->lock);
    return;
  }
  if (!errors) return;
  for (struct aci_nccl_group *g = n->groups; g != NULL && !n->broken; g = g->next) {
    int status = ACI_NCCL_SUCCESS;
    if (g->comm == NULL) continue;
    n->lib->ncclCommGetAsyncError(g->comm, &status);
    if (status == ACI_NCCL_SUCCESS || status == ACI_NCCL_IN_PROGRESS) continue;
    char what[160];
    aci_stop(w, AC_DEVICE, w->place.rank, &e, "rank %d: NCCL: %s in %s", w->place.rank,
             n->lib->ncclGetErrorString(status), aci_desc_text(&op->desc, what, sizeof what));
  }
  const int64_t limit = atomic_load(&w->timeout_ns), now = aci_now_ns();
  if (limit > 0 && now - op->began > limit && aci_aborted(w, NULL) == AC_OK) {
    char what[160];
    aci_stop(w, AC_TIMEOUT, -1, &e,
             "rank %d waited %.3g s for the end of %s on %s; raise --timeout if it is only slow",
             w->place.rank, (double)(now - op->began) / 1e9,
             aci_desc_text(&op->desc, what, sizeof what), n->device->name);
  }
  if (aci_aborted(w, NULL) != AC_OK) give_up(n);
}

static void *watch(void *arg) {
  aci_nccl *n = arg;
  pthread_mutex_lock(&n->lock);
  for (int turn = 0; !n->stop; turn++) {
    if (n->queued == NULL) {
      pthread_cond_wait(&n->more, &n->lock);
      continue;
    }
    look(n, turn % ERRORS_EVERY == 0);
    if (n->queued == NULL) continue;
    pthread_mutex_unlock(&n->lock);
    struct timespec t = {0, LOOK_MS * MS};
    nanosleep(&t, NULL);
    pthread_mutex_lock(&n->lock);
  }
  pthread_mutex_unlock(&n->lock);
  return NULL;
}

void aci_nccl_watch(aci_nccl *n, aci_device_op *op) {
  op->next = NULL;
  pthread_mutex_lock(&n->lock);
  aci_device_op **at = &n->queued;
  while (*at != NULL) at = &(*at)->next;
  *at = op;
  pthread_cond_signal(&n->more);
  pthread_mutex_unlock(&n->lock);
}

/* ---- opening and closing ---- */

ac_status aci_nccl_open(ac_world *w, ac_device *d, const aci_nccl_library *lib, ac_err *e) {
  aci_nccl *n = calloc(1, sizeof *n);
  if (n == NULL) return AC_FAIL(e, OOM, "no memory for communication on %s", d->name);
  atomic_store(&n->ref, 1);
  n->world = w;
  n->lib = lib;
  n->device = d;
  pthread_mutex_init(&n->lock, NULL);
  pthread_cond_init(&n->more, NULL);
  ac_device_retain(d);
  /* before kernels of the compute stream that wait for a place */
  ac_status st = d->vt->stream_new(d, 1, &n->stream, e);
  if (st == AC_OK) {
    n->handle = d->vt->stream_handle(d, n->stream);
    sigset_t all, was;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &was);
    const int rc = pthread_create(&n->thread, NULL, watch, n);
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    if (rc == 0) {
      n->started = true;
      aci_nccl_register_open(n);
      aci_nccl_memory_open(n);
      w->nccl = n;
      return AC_OK;
    }
    st = AC_FAIL(e, OOM, "cannot start the communication thread for %s: %s", d->name, strerror(rc));
    d->vt->stream_free(d, n->stream);
  }
  ac_device_release(d);
  free(n);
  return st;
}

void aci_nccl_release(aci_nccl *n) {
  if (atomic_fetch_sub(&n->ref, 1) != 1) return;
  ac_device *d = n->device;
  for (int i = 0; i < n->n_spare; i++) d->vt->event_free(d, n->spare[i]);
  ac_device_release(d);
  pthread_mutex_destroy(&n->lock);
  pthread_cond_destroy(&n->more);
  free(n->node);
  free(n);
}

void aci_nccl_close(ac_world *w) {
  aci_nccl *n = w->nccl;
  if (n == NULL) return;
  ac_device *d = n->device;
  const bool good = aci_aborted(w, NULL) == AC_OK;
  aci_nccl_directions_close(n);
  aci_nccl_memory_close(n);
  aci_nccl_register_close(n);
  if (good) d->vt->sync(d, n->stream, NULL); /* wait for queued operations: peers count on them */
  pthread_mutex_lock(&n->lock);
  if (!good) give_up(n);
  n->stop = true;
  pthread_cond_signal(&n->more);
  pthread_mutex_unlock(&n->lock);
  pthread_join(n->thread, NULL);
  while (n->queued != NULL) {
    aci_device_op *op = n->queued;
    n->queued = op->next;
    aci_device_op_release(op);
  }
  d->vt->stream_free(d, n->stream);
  w->nccl = NULL;
  aci_nccl_release(n); /* works that nobody waited for keep it until they are released */
}

ac_status aci_nccl_settle(aci_nccl *n, ac_group *g, struct aci_nccl_group *x, const aci_desc *d,
                          int status, const char *what, ac_err *e) {
  const int64_t began = aci_now_ns();
  AC_TRY(aci_nccl_check(n, status, what, e));
  for (int turn = 0; status == ACI_NCCL_IN_PROGRESS; turn++) {
    pthread_mutex_lock(&n->lock);
    const bool gone = x->comm == NULL;
    if (!gone && n->lib->ncclCommGetAsyncError(x->comm, &status) != ACI_NCCL_SUCCESS)
      status = ACI_NCCL_IN_PROGRESS;
    pthread_mutex_unlock(&n->lock);
    if (gone) {
      AC_TRY(aci_aborted(n->world, e));
      return AC_FAIL(e, DEVICE, "%s: %s: the communicator was aborted", n->device->name, what);
    }
    AC_TRY(aci_nccl_check(n, status, what, e));
    if (status != ACI_NCCL_IN_PROGRESS) break;
    if (turn > 100) {
      struct timespec t = {0, MS / 5};
      nanosleep(&t, NULL);
      if (turn % 20 == 0) AC_TRY(aci_wait_check(g, d, began, -1, e));
    }
  }
  aci_wait_over(n->world);
  return AC_OK;
}
