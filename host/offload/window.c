/* Which offloaded storages are currently resident. Uses are recorded, and each pass is expected to
 * repeat the last one. The next storages are fetched ahead of use, and the storage with the
 * farthest next use is evicted first (Belady's rule, which for a model larger than the window keeps
 * a part of it resident and streams the rest). See offload.h.
 *
 * Locks      The queue's lock guards all of it. aci_window_use, _out, _add and _remove are called
 *            with it held (tiered.c). The other public functions take it. A wait for a transfer
 *            drops it meanwhile, so read a storage's state again after settle().
 * States     OUT -> COMING -> IN -> LEAVING -> IN (clean) -> OUT. The I/O thread (queue.c) only
 *            moves bytes and marks the transfer done. settle() alone turns a finished transfer into
 *            the next state. resident.c owns the memory on the device.
 * Pins       A storage with pins > 0 is in use: it is never evicted or moved.
 * Failure    A failed write keeps the bytes resident and dirty, and the next use of the window
 *            reports it (w->failed). A failed fetch leaves the storage out, and its own next use
 *            reports the reason. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base_impl.h"
#include "offload/offload.h"
#include "offload/window.h"
#include "tensor/tensor_impl.h"

enum { LEAST_AHEAD = 32 << 20 };

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- bytes come and go ---- */

static void send(aci_window *w, aci_tiered *t, bool write, bool urgent) {
  t->transfer.home = &t->home;
  t->transfer.p = t->io;
  t->transfer.at = 0;
  t->transfer.bytes = t->home.bytes;
  t->transfer.write = write;
  t->transfer.map = t->in_place ? t->map : NULL;
  t->transfer.map_bytes = t->map_bytes;
  t->transfer.slack = aci_is_paged(t);
  t->transfer.lane = t->stage != NULL && t->lane.stream != NULL ? &t->lane : NULL;
  t->state = write ? ACI_LEAVING : ACI_COMING;
  aci_io_queue_send(w->queue, &t->transfer, urgent);
}

/* Waits for t's transfer under way and takes its outcome. A write that failed leaves the bytes
 * here, still to be written. */
static ac_status settle(aci_window *w, aci_tiered *t, ac_err *e) {
  if (t->state != ACI_COMING && t->state != ACI_LEAVING) return AC_OK;
  aci_io_queue_wait(w->queue, &t->transfer);
  t->transfer.state = ACI_NOT_SENT;
  ac_status st = t->transfer.st;
  if (st != AC_OK && e != NULL) *e = t->transfer.err;
  if (t->state == ACI_COMING) {
    if (st == AC_OK) st = aci_resident_arrive(w, t, e);
    /* bytes are read, from now on ahead of uses as well */
    if (st == AC_UNSUPPORTED && t->transfer.map != NULL) t->home.store->no_map = true;
    if (st != AC_OK) aci_resident_drop(w, t);
  } else {
    aci_resident_unstage(w, t);
    t->state = ACI_IN;
    if (st == AC_OK) t->dirty = false;
  }
  return st;
}

static bool finished(const aci_tiered *t) {
  return (t->state == ACI_COMING || t->state == ACI_LEAVING) && t->transfer.state == ACI_DONE;
}

/* Starts to write t home. */
static ac_status begin_write(aci_window *w, aci_tiered *t, ac_err *e) {
  ac_status st = AC_OK;
  t->io = t->ptr;
  if (!aci_on_cpu(w)) {
    st = aci_resident_stage(w, t, e);
    if (st == AC_OOM && aci_lanes_reclaim(w, true)) st = aci_resident_stage(w, t, e);
    if (st == AC_OK && t->lane.stream != NULL) {
      st = aci_lane_start_down(&t->lane, t->io, t->home.bytes, e);
    } else if (st == AC_OK) {
      st = w->device->vt->copy(w->device, NULL, t->io, t->ptr, t->home.bytes, e);
      if (st == AC_OK) st = ac_device_sync(w->device, e);
    }
    if (st != AC_OK) aci_resident_unstage(w, t);
  }
  if (st == AC_OK) send(w, t, true, false);
  return st;
}

static bool may_leave(const aci_tiered *t) { return !t->dirty || !t->home.store->fixed; }

ac_status aci_window_out(aci_window *w, aci_tiered *t, ac_err *e) {
  if (t->pins > 0)
    return AC_FAIL(e, STATE, "bytes of %zu are in use and cannot be moved", t->home.bytes);
  if (t->state == ACI_COMING && aci_io_queue_cancel(w->queue, &t->transfer))
    aci_resident_drop(w, t);
  /* a failed fetch leaves it out. Its next use reports the reason */
  if (t->state == ACI_COMING) (void)settle(w, t, NULL);
  AC_TRY(settle(w, t, e));
  if (t->state == ACI_OUT) return AC_OK;
  if (!may_leave(t))
    return AC_FAIL(e, STATE, "%s is read-only, so changes stay in memory", t->home.store->path);
  if (t->dirty) {
    AC_TRY(begin_write(w, t, e));
    AC_TRY(settle(w, t, e));
  }
  aci_resident_drop(w, t);
  w->stats.evicted++;
  return AC_OK;
}

/* ---- who goes, who comes ---- */

/* Evicts t, which must not be in use. wait: also if it has to be written first. False: it is still
 * there. */
static bool evict(aci_window *w, aci_tiered *t, bool wait, ac_err *e, ac_status *st) {
  if (t->dirty && t->state == ACI_IN) {
    if ((*st = begin_write(w, t, e)) != AC_OK) return false;
    if (!wait) return false;
  }
  /* those that are through are settled already */
  if (t->state == ACI_LEAVING && !wait) return false;
  if ((*st = settle(w, t, e)) != AC_OK) return false;
  aci_resident_drop(w, t);
  w->stats.evicted++;
  return true;
}

/* The storage, not in use, whose next use is farthest, at `least` uses from now or more. NULL:
 * there is none. */
static aci_tiered *farthest(aci_window *w, int least) {
  aci_tiered *best = NULL;
  int far = least - 1;
  for (int i = 0; i < w->n_all; i++) {
    aci_tiered *t = w->all[i];
    if (t == NULL || t->pins > 0 || !may_leave(t) ||
        (t->state != ACI_IN && t->state != ACI_LEAVING))
      continue;
    if (finished(t)) {
      const ac_status st = settle(w, t, &w->failed);
      if (st != AC_OK) continue;
    }
    const int d = aci_window_distance(w, i);
    if (d > far || (d == far && best != NULL && best->dirty && !t->dirty)) {
      best = t;
      far = d;
    }
  }
  return best;
}

/* Makes room for `bytes` within the budget by evicting storages whose next use is `least` uses from
 * now or later. False: there is none. */
static bool room(aci_window *w, size_t bytes, int least, bool wait, ac_err *e, ac_status *st) {
  *st = AC_OK;
  while (w->budget > 0 && w->stats.resident_bytes + bytes > w->budget) {
    aci_tiered *t = farthest(w, least);
    if (t == NULL || (!evict(w, t, wait, e, st) && (*st != AC_OK || !wait))) return false;
  }
  return true;
}

/* Memory of the device for t. For a use that cannot wait, all others are evicted if the pool has no
 * more. */
static ac_status admit(aci_window *w, aci_tiered *t, bool must, int least, ac_err *e) {
  ac_status st;
  if (!room(w, t->home.bytes, least, must, e, &st) && (!must || st != AC_OK))
    return st != AC_OK ? st : AC_OOM;
  while ((st = aci_resident_make(w, t, e)) == AC_OOM) {
    if (aci_lanes_reclaim(w, must)) continue; /* page-locked memory counts as well */
    aci_tiered *other = farthest(w, least);
    ac_err ignored;
    if (other == NULL) return st;
    if (!evict(w, other, must, must ? e : &ignored, &st)) return st != AC_OK ? st : AC_OOM;
    ac_pool_trim(w->device);
    if (w->adapts) w->budget = w->stats.resident_bytes + t->home.bytes;
  }
  return st;
}

/* Whether the pages of t, which is out, are in memory. Asked of the system once a pass: it may have
 * taken them. */
static bool has_pages(const aci_window *w, aci_tiered *t) {
  if (t->home.store->no_map || w->queue->no_map) return false; /* they are not used */
  if (t->filled && t->looked != w->passes) {
    t->filled = aci_map_is_filled(t->map, t->map_bytes);
    t->looked = w->passes;
  }
  return t->filled;
}

/* Fetches the next storages, as far as there is room, up to `ahead` bytes. */
static void look_ahead(aci_window *w) {
  size_t bytes = 0;
  const size_t most = w->ahead > 0                  ? w->ahead
                      : w->budget / 4 > LEAST_AHEAD ? w->budget / 4
                                                    : LEAST_AHEAD;
  if (w->pos < 0) return;
  for (int k = 0; k < w->n_trace && (k < 2 || bytes < most); k++) {
    aci_tiered *t = w->all[w->trace[(w->pos + k) % w->n_trace]];
    ac_err e;
    if (t == NULL) continue;
    /* count resident ones too: looking farther would push out storages that stay from pass to
     * pass */
    bytes += t->home.bytes;
    /* resident storages need no fetch */
    if (t->state != ACI_OUT || aci_is_at_home(w, t) || has_pages(w, t)) continue;
    if (admit(w, t, false, k + 1, &e) != AC_OK) return;
    send(w, t, false, false);
    w->stats.prefetched++;
  }
}

/* Brings t, which is out, for a use that waits for it. */
static ac_status fetch(aci_window *w, aci_tiered *t, ac_err *e) {
  for (;;) {
    AC_TRY(admit(w, t, true, 1, e));
    const bool mapped = t->in_place && t->map != NULL;
    if (t->in_place && (!mapped || aci_map_is_filled(t->map, t->map_bytes))) {
      t->state = ACI_IN;
      return AC_OK;
    }
    send(w, t, false, true);
    const ac_status st = settle(w, t, e);
    if (st == AC_OK || !mapped) return st;
    t->no_map = true; /* reading works, or reports the reason */
  }
}

/* A map may be used until its file is released. If that is not possible, the bytes are read. */
static ac_status hold(aci_window *w, aci_tiered *t, ac_err *e) {
  if (aci_map_hold(t->home.store, t->home.at + t->home.bytes)) {
    t->filled = true;
    t->home.store->mapped += t->home.bytes;
    return AC_OK;
  }
  if (t->dirty)
    return AC_FAIL(e, IO,
                   "%s is being written or was cut, and its changed parts do not fit in memory",
                   t->home.store->path);
  aci_resident_drop(w, t);
  t->no_map = true;
  return fetch(w, t, e);
}

ac_status aci_window_use(aci_window *w, aci_tiered *t, ac_err *e) {
  aci_window_record(w, t->number);
  if (w->failed.code != AC_OK) { /* reported once. Bytes that could not be written are still here */
    const ac_status st = w->failed.code;
    if (e != NULL) *e = w->failed;
    w->failed.code = AC_OK;
    return st;
  }
  if (t->pins == 0 && t->state != ACI_IN) {
    const uint64_t from = now_ns();
    const bool was_asked = t->state != ACI_OUT, mapped = t->in_place;
    ac_status st = AC_OK;
    if (t->state == ACI_COMING && t->transfer.state == ACI_SENT)
      aci_io_queue_hurry(w->queue, &t->transfer);
    if (was_asked) st = settle(w, t, e);
    if (st != AC_OK && mapped) {
      t->no_map = true;
      st = AC_OK;
    }
    if (st == AC_OK && t->state == ACI_OUT) st = fetch(w, t, e);
    w->stats.wait_ns += now_ns() - from;
    if (was_asked || t->in_place) w->stats.hits++;
    else w->stats.misses++;
    AC_TRY(st);
  } else {
    w->stats.hits++;
  }
  if (t->pins == 0 && t->in_place && t->map != NULL) AC_TRY(hold(w, t, e));
  t->pins++;
  look_ahead(w);
  return AC_OK;
}

/* ---- the window as a whole ---- */

ac_status aci_window_new(aci_io_queue *q, ac_device *d, size_t budget, size_t ahead,
                         aci_window **out, ac_err *e) {
  aci_window *w = calloc(1, sizeof *w);
  *out = NULL;
  if (w == NULL) return AC_FAIL(e, OOM, "no memory for a window");
  w->ref = 1;
  w->pos = -1;
  w->budget = budget;
  w->ahead = ahead;
  w->adapts = budget == 0;
  aci_io_queue_retain(q);
  w->queue = q;
  ac_device_retain(d);
  w->device = d;
  pthread_mutex_lock(&q->lock);
  w->next = q->windows;
  q->windows = w;
  pthread_mutex_unlock(&q->lock);
  *out = w;
  return AC_OK;
}

void aci_window_retain(aci_window *w) {
  atomic_fetch_add_explicit(&w->ref, 1, memory_order_relaxed);
}

void aci_window_release(aci_window *w) {
  if (w == NULL || !aci_unref(&w->ref)) return;
  aci_io_queue *q = w->queue;
  pthread_mutex_lock(&q->lock);
  aci_window **at = &q->windows;
  while (*at != w) at = &(*at)->next;
  *at = w->next;
  aci_lanes_close(w);
  pthread_mutex_unlock(&q->lock);
  ac_device_release(w->device);
  free(w->all);
  free(w->trace);
  free(w->now);
  free(w->start);
  free(w->place);
  free(w);
  aci_io_queue_release(q);
}

ac_status aci_window_add(aci_window *w, aci_tiered *t, ac_err *e) {
  int i = 0;
  while (i < w->n_all && w->all[i] != NULL) i++;
  if (i == w->cap_all) {
    const int cap = w->cap_all == 0 ? 64 : 2 * w->cap_all;
    aci_tiered **more = realloc(w->all, (size_t)cap * sizeof *more);
    if (more == NULL) return AC_FAIL(e, OOM, "no memory for a window's table");
    w->all = more;
    w->cap_all = cap;
  }
  w->all[i] = t;
  t->number = i;
  if (i == w->n_all) w->n_all++;
  return AC_OK;
}

void aci_window_remove(aci_window *w, aci_tiered *t) {
  if (!aci_io_queue_cancel(w->queue, &t->transfer)) aci_io_queue_wait(w->queue, &t->transfer);
  aci_resident_drop(w, t);
  aci_resident_unmap(t);
  aci_lane_close(w, t);
  w->all[t->number] = NULL;
}

void aci_window_pass(aci_window *w, bool in_order) {
  pthread_mutex_lock(&w->queue->lock);
  aci_window_turn(w);
  if (w->n_trace == 0 && in_order) aci_window_guess(w);
  w->pos = w->n_trace > 0 ? 0 : -1;
  look_ahead(w);
  pthread_mutex_unlock(&w->queue->lock);
}

ac_status aci_window_empty(aci_window *w, bool flush, ac_err *e) {
  ac_status st = AC_OK;
  pthread_mutex_lock(&w->queue->lock);
  for (int i = 0; i < w->n_all && st == AC_OK; i++) {
    aci_tiered *t = w->all[i];
    if (t == NULL || t->pins > 0 || !may_leave(t)) continue;
    if (!flush) {
      st = aci_window_out(w, t, e);
    } else if (t->state != ACI_COMING) {
      st = settle(w, t, e);
      if (st == AC_OK && t->state == ACI_IN && t->dirty) st = begin_write(w, t, e);
    }
  }
  for (int i = 0; flush && i < w->n_all; i++)
    if (w->all[i] != NULL && w->all[i]->state == ACI_LEAVING && st == AC_OK)
      st = settle(w, w->all[i], e);
  if (!flush) (void)aci_lanes_reclaim(w, true);
  if (st == AC_OK && w->failed.code != AC_OK) {
    st = w->failed.code;
    if (e != NULL) *e = w->failed;
  }
  w->failed.code = AC_OK;
  pthread_mutex_unlock(&w->queue->lock);
  return st;
}

void aci_window_stats_get(aci_window *w, aci_window_stats *out) {
  pthread_mutex_lock(&w->queue->lock);
  *out = w->stats;
  out->budget_bytes = w->budget;
  pthread_mutex_unlock(&w->queue->lock);
}

bool aci_io_queue_reclaim(aci_io_queue *q, ac_device *d) {
  bool freed = false;
  pthread_mutex_lock(&q->lock);
  for (aci_window *w = q->windows; w != NULL; w = w->next) {
    if (!aci_same_device(w->device, d)) continue;
    const size_t before = w->stats.resident_bytes;
    for (int i = 0; i < w->n_all; i++) {
      ac_err ignored; /* bytes that cannot be written stay. The next use reports the failure */
      if (w->all[i] != NULL && w->all[i]->pins == 0 && may_leave(w->all[i]))
        (void)aci_window_out(w, w->all[i], &ignored);
    }
    freed |= aci_lanes_reclaim(w, true);
    if (w->stats.resident_bytes == before) continue;
    freed = true;
    if (w->adapts) w->budget = before / 4 * 3;
  }
  pthread_mutex_unlock(&q->lock);
  return freed;
}
