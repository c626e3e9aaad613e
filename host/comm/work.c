/* How a collective runs: inline on its caller when nothing is queued, otherwise in turn on the
 * world's one communication thread.
 *
 * Callers    The thread that owns the context calls ac_collective and ac_collective_start, in the
 *            same order on every rank. It alone adds works, so the inline path is safe once
 *            `pending` is 0: nothing can be queued meanwhile.
 * Order      Works run in the order in which they were started. Sends and receives that stand next
 *            to each other run at the same time, so that two ranks may send to each other.
 *            Collectives are numbered (g->seq) when they are started, not when they run.
 * Ownership  A queued work has two references, the caller's and the queue's. It retains its
 *            storages and copies lists of counts, so the caller's tensors and lists may end with
 *            the call. The group must outlive the work.
 * Completion finish() alone completes a queued work: it writes the record, releases the storages,
 * sets `done` and wakes waiters.
 *            status, err and on_device are valid only after `done` has been read. For tensors on a
 *            device, `done` means that the kernels are queued. ac_work_wait then makes the compute
 *            stream wait for them and releases the storages. A send or receive that ends at its
 *            first step, because its message has come, completes on its caller.
 * Locks      q->lock guards the list and `stop`. No backend call is made under it.
 *
 * The thread starts with the first work. It waits without spinning if the script's own thread needs
 * the core. */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/comm_impl.h"
#include "device/device_impl.h"

enum { MAX_KEEP = 64, INLINE_MOST = 1 << 20, NAP = 1000000, TURNS = 32 };

struct ac_work {
  _Atomic int ref;
  _Atomic bool done;
  ac_group *group;
  ac_coll coll;
  aci_desc desc;
  ac_comm_record *row;
  void *send_recv_state;
  int64_t began;
  ac_status status;
  ac_err err;
  ac_work *next;
  ac_event *ready; /* of a device: its buffers may be read after it. NULL: none */
  /* the queued operation. NULL: nothing so far, or it has been waited for */
  aci_device_op *on_device;
  int n_keep;
  ac_storage *keep[MAX_KEEP];
  int64_t *counts; /* copies of both lists */
};

struct aci_queue {
  ac_world *world;
  pthread_mutex_t lock;
  pthread_cond_t more, finished;
  pthread_t thread;
  bool started, stop;
  _Atomic int pending; /* queued or running */
  ac_work *first, *last;
};

static bool is_pair(const ac_work *k) {
  return k->coll.kind == AC_COLL_SEND || k->coll.kind == AC_COLL_RECV;
}

/* ---- running ---- */
/* seen: the doorbell before the steps that made no progress, of which there were idle + 1 in a row.
 * polls: one of them is on a device, which rings no doorbell. */
static void pause_a_little(const ac_world *w, int spins, int idle, uint32_t seen, bool polls) {
  if (idle < spins) {
    aci_relax();
  } else if (w->backend->rings && !polls && idle < spins + TURNS) {
    /* who is waited for may be next in line for this core: a few turns for others cost less than
     * going to sleep */
    sched_yield();
  } else if (w->backend->rings && !polls) {
    const int naps = idle - spins - TURNS;
    aci_doorbell_wait(w->page, seen, naps < 4 ? NAP * (naps + 1) : 4 * NAP);
  } else if (idle < spins + 64) {
    sched_yield();
  } else {
    struct timespec t = {0, idle < spins + 128 ? 20000 : 200000};
    nanosleep(&t, NULL);
  }
}

static ac_status send_recv(ac_work *k, bool *done, ac_err *e) {
  ac_group *g = k->group;
  if (k->coll.device != NULL)
    return aci_device_send_recv(g, &k->coll, &k->desc, k->ready, &k->send_recv_state, done,
                                &k->on_device, e);
  return g->world->backend->send_recv(g, &k->coll, &k->desc, &k->send_recv_state, done, e);
}

static uint32_t doorbell_of(const ac_world *w) {
  return w->backend->rings ? atomic_load(&w->page->doorbell) : 0;
}

/* One step of a send or receive, and now and then a check of peers and time. True when it is over.
 * naps: pauses since spinning ended. */
static bool send_recv_step(ac_work *k, int naps) {
  ac_group *g = k->group;
  ac_world *w = g->world;
  bool done = false;
  k->status = send_recv(k, &done, &k->err);
  if (k->status != AC_OK || done) return true;
  if (naps <= 0 || naps % (w->backend->rings ? 4 : 16) != 0) return false;
  k->status = aci_wait_check(g, &k->desc, k->began, k->coll.root, &k->err);
  if (k->status == AC_OK) return false;
  done = true; /* the world is over: the transfer is given up */
  send_recv(k, &done, NULL);
  return true;
}

static ac_status send_recv_alone(ac_work *k, ac_err *e) {
  k->began = aci_now_ns();
  const ac_world *w = k->group->world;
  uint32_t seen = doorbell_of(w);
  for (int idle = 0; !send_recv_step(k, idle - w->spins); idle++) {
    pause_a_little(w, w->spins, idle, seen, k->coll.device != NULL);
    seen = doorbell_of(w);
  }
  if (k->status != AC_OK && e != NULL) *e = k->err;
  return k->status;
}

static void let_go(ac_work *k) {
  for (int i = 0; i < k->n_keep; i++) ac_storage_release(k->keep[i]);
  k->n_keep = 0;
}

/* Its kernels may still use the buffers, whose memory goes by the order of the compute stream: that
 * waits first. */
static ac_status join_device(ac_work *k, ac_err *e) {
  ac_status st = AC_OK;
  if (k->on_device != NULL) {
    st = aci_device_op_join(k->on_device, e);
    aci_device_op_release(k->on_device);
    k->on_device = NULL;
  }
  let_go(k);
  return st;
}

static void finish(aci_queue *q, ac_work *k) {
  aci_record_end(q->world, k->row, k->status);
  if (k->on_device == NULL) let_go(k);
  pthread_mutex_lock(&q->lock);
  atomic_store_explicit(&k->done, true, memory_order_release);
  atomic_fetch_sub_explicit(&q->pending, 1, memory_order_release);
  pthread_cond_broadcast(&q->finished);
  pthread_mutex_unlock(&q->lock);
  ac_work_release(k);
}

static void begin(ac_work *k) {
  k->began = aci_now_ns();
  aci_record_run(k->group->world, k->row);
  k->status = aci_aborted(k->group->world, &k->err);
}

/* Takes the next work, or with pairs_only the next one if it is a send or receive. The caller holds
 * the lock. */
static ac_work *take(aci_queue *q, bool pairs_only) {
  ac_work *k = q->first;
  if (k == NULL || (pairs_only && !is_pair(k))) return NULL;
  q->first = k->next;
  if (q->first == NULL) q->last = NULL;
  k->next = NULL;
  return k;
}

/* Runs k and every send and receive that directly follows it, including those that are queued
 * meanwhile. */
static void run_pairs(aci_queue *q, ac_work *k) {
  ac_world *w = q->world;
  const int spins = w->backend->rings ? w->thread_spins : w->spins;
  ac_work *active = k;
  if (k->send_recv_state == NULL) begin(k);
  for (int idle = 0; active != NULL; idle++) {
    const uint32_t seen = doorbell_of(w);
    bool moved = false, polls = false;
    for (ac_work **at = &active; *at != NULL;) {
      ac_work *x = *at;
      if (x->status == AC_OK && !send_recv_step(x, idle - spins)) {
        polls |= x->coll.device != NULL;
        at = &x->next;
        continue;
      }
      *at = x->next;
      x->next = NULL;
      finish(q, x);
      moved = true;
    }
    pthread_mutex_lock(&q->lock);
    for (ac_work *x; (x = take(q, true)) != NULL;) {
      if (x->send_recv_state == NULL) begin(x);
      ac_work **end = &active;
      while (*end != NULL) end = &(*end)->next;
      *end = x;
      moved = true;
    }
    pthread_mutex_unlock(&q->lock);
    if (moved) idle = -1;
    else pause_a_little(w, spins, idle, seen, polls);
  }
}

static void *serve(void *arg) {
  aci_queue *q = arg;
  for (;;) {
    pthread_mutex_lock(&q->lock);
    while (q->first == NULL && !q->stop) pthread_cond_wait(&q->more, &q->lock);
    ac_work *k = take(q, false);
    pthread_mutex_unlock(&q->lock);
    if (k == NULL) return NULL;
    if (is_pair(k)) {
      run_pairs(q, k);
      continue;
    }
    begin(k);
    if (k->status == AC_OK && k->coll.device != NULL)
      k->status = aci_device_run(k->group, &k->coll, &k->desc, k->ready, &k->on_device, &k->err);
    else if (k->status == AC_OK)
      k->status = q->world->backend->run(k->group, &k->coll, &k->desc, &k->err);
    finish(q, k);
  }
}

/* ---- queue ---- */
aci_queue *aci_queue_new(ac_world *w) {
  aci_queue *q = calloc(1, sizeof *q);
  if (q == NULL) return NULL;
  q->world = w;
  pthread_mutex_init(&q->lock, NULL);
  pthread_cond_init(&q->more, NULL);
  pthread_cond_init(&q->finished, NULL);
  return q;
}

void aci_queue_free(aci_queue *q) {
  if (q == NULL) return;
  if (q->started) {
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
  }
  pthread_mutex_destroy(&q->lock);
  pthread_cond_destroy(&q->more);
  pthread_cond_destroy(&q->finished);
  free(q);
}

void aci_queue_drain(aci_queue *q) {
  atomic_fetch_add(&q->world->awaited, 1);
  pthread_mutex_lock(&q->lock);
  while (atomic_load(&q->pending) != 0) pthread_cond_wait(&q->finished, &q->lock);
  pthread_mutex_unlock(&q->lock);
  atomic_fetch_sub(&q->world->awaited, 1);
}

static ac_status start_thread(aci_queue *q, ac_err *e) {
  sigset_t all, was;
  sigfillset(&all); /* signals are for the thread that runs scripts */
  pthread_sigmask(SIG_SETMASK, &all, &was);
  int rc = pthread_create(&q->thread, NULL, serve, q);
  pthread_sigmask(SIG_SETMASK, &was, NULL);
  if (rc != 0) return AC_FAIL(e, OOM, "cannot start the communication thread: %s", strerror(rc));
  q->started = true;
  return AC_OK;
}

/* An event after the work queued so far on the compute stream of a device. */
static ac_status event_of_now(ac_device *d, ac_event **out, ac_err *e) {
  AC_TRY(d->vt->event_new(d, out, e));
  const ac_status st = d->vt->event_record(d, *out, NULL, e);
  if (st == AC_OK) return AC_OK;
  d->vt->event_free(d, *out);
  *out = NULL;
  return st;
}

/* ---- the public face ---- */
ac_status ac_collective(ac_group *g, const ac_coll *c, ac_err *e) {
  ac_world *w = g->world;
  aci_queue *q = w->queue;
  AC_TRY(aci_coll_check(g, c, e));
  if (atomic_load_explicit(&w->aborted, memory_order_acquire) != 0) AC_TRY(aci_aborted(w, e));
  if (atomic_load_explicit(&q->pending, memory_order_acquire) != 0) {
    ac_work *k;
    AC_TRY(ac_collective_start(g, c, 0, NULL, &k, e));
    ac_status st = ac_work_wait(k, e);
    ac_work_release(k);
    return st;
  }
  if (c->kind == AC_COLL_SEND || c->kind == AC_COLL_RECV) {
    ac_work k;
    memset(&k, 0, sizeof k);
    k.group = g;
    k.coll = *c;
    aci_desc_fill(g, c, 0, &k.desc);
    k.row = aci_record_begin(w, g, c, 0, false);
    ac_status st = c->device != NULL ? event_of_now(c->device, &k.ready, e) : AC_OK;
    if (st == AC_OK) st = send_recv_alone(&k, e);
    if (st == AC_OK) st = join_device(&k, e);
    if (k.ready != NULL) c->device->vt->event_free(c->device, k.ready);
    aci_record_end(w, k.row, st);
    return st;
  }
  aci_desc d;
  aci_desc_fill(g, c, ++g->seq, &d);
  ac_comm_record *row = aci_record_begin(w, g, c, g->seq, false);
  ac_status st;
  if (c->device == NULL) {
    st = w->backend->run(g, c, &d, e);
  } else {
    ac_event *ready = NULL;
    aci_device_op *op = NULL;
    st = event_of_now(c->device, &ready, e);
    if (st == AC_OK) st = aci_device_run(g, c, &d, ready, &op, e);
    if (st == AC_OK) st = aci_device_op_join(op, e);
    aci_device_op_release(op);
    if (ready != NULL) c->device->vt->event_free(c->device, ready);
  }
  aci_record_end(w, row, st);
  return st;
}

/* The first step of a send or receive on its caller, if nothing is queued. The thread takes large
 * ones, so that copies overlap with compute. */
static bool begun_and_over(aci_queue *q, ac_work *k) {
  if (!q->world->backend->rings || atomic_load_explicit(&q->pending, memory_order_acquire) != 0)
    return false;
  if ((size_t)k->coll.count * ac_dtype_bytes(k->coll.dtype) > INLINE_MOST || k->coll.device != NULL)
    return false;
  begin(k);
  if (k->status == AC_OK && !send_recv_step(k, 0)) return false;
  aci_record_end(q->world, k->row, k->status);
  let_go(k);
  atomic_store(&k->ref, 1);
  atomic_store_explicit(&k->done, true, memory_order_release);
  return true;
}

ac_status ac_collective_start(ac_group *g, const ac_coll *c, int n, ac_storage *const *keep,
                              ac_work **out, ac_err *e) {
  ac_world *w = g->world;
  aci_queue *q = w->queue;
  AC_TRY(aci_coll_check(g, c, e));
  AC_TRY(aci_aborted(w, e));
  if (n > MAX_KEEP)
    return AC_FAIL(e, INVALID, "%s: more than %d storages", ac_coll_name(c->kind), MAX_KEEP);
  const size_t lists =
      (c->counts != NULL ? (size_t)g->size : 0) + (c->recv_counts != NULL ? (size_t)g->size : 0);
  /* the caller's lists of counts may end with its call: both are copied */
  ac_work *k = calloc(1, sizeof *k);
  if (k == NULL || (lists > 0 && (k->counts = malloc(lists * sizeof *k->counts)) == NULL)) {
    free(k);
    return AC_FAIL(e, OOM, "%s: no memory for a work", ac_coll_name(c->kind));
  }
  if (!q->started) {
    ac_status st = start_thread(q, e);
    if (st != AC_OK) {
      free(k->counts);
      free(k);
      return st;
    }
  }
  k->group = g;
  k->coll = *c;
  if (c->device != NULL) {
    const ac_status st = event_of_now(c->device, &k->ready, e);
    if (st != AC_OK) {
      free(k->counts);
      free(k);
      return st;
    }
    ac_device_retain(c->device);
  }
  int64_t *at = k->counts;
  if (c->counts != NULL) {
    memcpy(at, c->counts, (size_t)g->size * sizeof *at);
    k->coll.counts = at;
    at += g->size;
  }
  if (c->recv_counts != NULL) {
    memcpy(at, c->recv_counts, (size_t)g->size * sizeof *at);
    k->coll.recv_counts = at;
  }
  /* numbered here, in the order of the script, not when it runs: that order is the same on every
   * rank */
  const bool pair = is_pair(k);
  if (!pair) g->seq++;
  aci_desc_fill(g, c, pair ? 0 : g->seq, &k->desc);
  k->coll.site = k->desc.site;
  k->row = aci_record_begin(w, g, c, pair ? 0 : g->seq, true);
  /* storages live until finish(), whatever becomes of the tensors meanwhile */
  for (int i = 0; i < n; i++) ac_storage_retain(k->keep[i] = keep[i]);
  k->n_keep = n;
  *out = k;
  if (pair && begun_and_over(q, k)) return AC_OK;
  atomic_store(&k->ref, 2); /* the caller's and the queue's */
  pthread_mutex_lock(&q->lock);
  atomic_fetch_add_explicit(&q->pending, 1, memory_order_relaxed);
  if (q->last != NULL) q->last->next = k;
  else q->first = k;
  q->last = k;
  pthread_cond_signal(&q->more);
  pthread_mutex_unlock(&q->lock);
  if (w->backend->rings) aci_doorbell_ring(w->page); /* the thread may wait there for others */
  return AC_OK;
}

/* The communication thread is through with it. */
static bool is_over(const ac_work *k) {
  return atomic_load_explicit(&k->done, memory_order_acquire);
}

bool ac_work_done(const ac_work *k) {
  return is_over(k) && (k->on_device == NULL || aci_device_op_done(k->on_device));
}

ac_status ac_work_wait(ac_work *k, ac_err *e) {
  if (!is_over(k)) {
    aci_queue *q = k->group->world->queue;
    atomic_fetch_add(&q->world->awaited, 1);
    pthread_mutex_lock(&q->lock);
    while (!is_over(k)) pthread_cond_wait(&q->finished, &q->lock);
    pthread_mutex_unlock(&q->lock);
    atomic_fetch_sub(&q->world->awaited, 1);
  }
  if (k->status == AC_OK && k->on_device != NULL) return join_device(k, e);
  if (k->status != AC_OK && e != NULL) *e = k->err;
  return k->status;
}

void ac_work_retain(ac_work *k) { atomic_fetch_add_explicit(&k->ref, 1, memory_order_relaxed); }

void ac_work_release(ac_work *k) {
  if (k == NULL || atomic_fetch_sub_explicit(&k->ref, 1, memory_order_acq_rel) != 1) return;
  join_device(k, NULL);
  if (k->ready != NULL) k->coll.device->vt->event_free(k->coll.device, k->ready);
  ac_device_release(k->coll.device);
  free(k->counts);
  free(k);
}
