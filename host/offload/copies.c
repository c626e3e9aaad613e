/* Copies between page-locked memory and a device, on a stream of the window's own, in parallel with
 * the device's compute. See offload.h.
 *
 * To the device: the I/O thread reads the bytes into page-locked memory and queues their copy on
 * the stream, after the work that used the device's memory before. When the bytes are used, the
 * compute stream waits for the copy. The host never waits. The page-locked memory is kept until the
 * copy is done. From the device: the copy is queued on the stream at once, after the work that
 * wrote the bytes. When it is done, the I/O thread writes them home. No wait here consumes errors
 * of kernels (an index out of range): the next caller of the device gets them. Devices without
 * streams copy in the order of their work. Called with the queue's lock held, except for
 * aci_lane_up. */
#include <time.h>

#include "device/capture.h"
#include "device/device_impl.h"
#include "offload/offload.h"
#include "offload/window.h"

ac_status aci_lane_open(aci_window *w, aci_tiered *t, ac_err *e) {
  const ac_device_vtable *vt = w->device->vt;
  aci_lane *x = &t->lane;
  if (vt->stream_new == NULL) return AC_OK;
  if (w->stream == NULL) AC_TRY(vt->stream_new(w->device, 1, &w->stream, e));
  x->device = w->device;
  x->stream = w->stream;
  if (x->before == NULL) AC_TRY(vt->event_new(w->device, &x->before, e));
  if (x->after == NULL) AC_TRY(vt->event_new(w->device, &x->after, e));
  x->there = t->ptr;
  return vt->event_record(w->device, x->before, NULL, e);
}

/* The copy that the stream was given last: when it is through. */
static ac_status mark(aci_lane *x, ac_err *e) {
  const ac_status st = x->device->vt->event_record(x->device, x->after, x->stream, e);
  if (st == AC_OK) x->under_way = true;
  else x->device->vt->sync(x->device, x->stream, NULL); /* nothing will tell */
  return st;
}

ac_status aci_lane_up(aci_lane *x, const void *from, size_t bytes, ac_err *e) {
  const ac_device_vtable *vt = x->device->vt;
  AC_TRY(vt->stream_wait(x->device, x->stream, x->before, e));
  AC_TRY(vt->copy(x->device, x->stream, x->there, from, bytes, e));
  return mark(x, e);
}

ac_status aci_lane_start_down(aci_lane *x, void *to, size_t bytes, ac_err *e) {
  const ac_device_vtable *vt = x->device->vt;
  AC_TRY(vt->stream_wait(x->device, x->stream, x->before, e));
  AC_TRY(vt->copy(x->device, x->stream, to, x->there, bytes, e));
  return mark(x, e);
}

ac_status aci_lane_down(aci_lane *x, bool *done, ac_err *e) {
  AC_TRY(x->device->vt->event_query(x->device, x->after, done, e));
  if (*done) x->under_way = false;
  return AC_OK;
}

/* Waits until a copy is done. It polls, which works while work is recorded. If the device fails, no
 * copy is under way any more. */
static void until(ac_device *d, ac_event *after) {
  const struct timespec nap = {0, 20000};
  bool done = false;
  while (d->vt->event_query(d, after, &done, NULL) == AC_OK && !done) nanosleep(&nap, NULL);
}

static bool free_spent(aci_window *w, bool all) {
  const int before = w->n_spent;
  int n = 0;
  for (int i = 0; i < before; i++) {
    bool done = all;
    if (all) until(w->device, w->spent[i].after);
    else if (w->device->vt->event_query(w->device, w->spent[i].after, &done, NULL) != AC_OK)
      done = false;
    if (!done) {
      w->spent[n++] = w->spent[i];
      continue;
    }
    ac_block_free(w->spent[i].block);
    w->device->vt->event_free(w->device, w->spent[i].after);
  }
  w->n_spent = n;
  return n < before;
}

bool aci_lanes_reclaim(aci_window *w, bool all) {
  if (!free_spent(w, all)) return false;
  ac_pool_trim(w->device);
  return true;
}

/* The copy under way, which work on the device's memory waits for, continues with t's page-locked
 * memory. */
static void keep(aci_window *w, aci_tiered *t) {
  free_spent(w, w->n_spent == ACI_SPENT);
  w->spent[w->n_spent++] = (aci_spent){t->stage, t->lane.after};
  t->stage = NULL;
  t->lane.after = NULL;
  t->lane.under_way = false;
}

ac_status aci_lane_arrive(aci_window *w, aci_tiered *t, ac_err *e) {
  aci_lane *x = &t->lane;
  if (!x->under_way) return AC_OK;
  AC_TRY(aci_capture_refuse(x->device, "a tensor comes from another tier of memory (offload)", e));
  AC_TRY(x->device->vt->stream_wait(x->device, NULL, x->after, e));
  keep(w, t);
  return AC_OK;
}

void aci_lane_end(aci_window *w, aci_tiered *t) {
  aci_lane *x = &t->lane;
  if (!x->under_way) return;
  const aci_device_capture *c = x->device->capture;
  /* its stream waits for none that does not record */
  const bool records = c != NULL && c->recording;
  if (records || x->device->vt->stream_wait(x->device, NULL, x->after, NULL) != AC_OK)
    until(x->device, x->after);
  keep(w, t);
}

void aci_lane_close(aci_window *w, aci_tiered *t) {
  aci_lane *x = &t->lane;
  bool last = true;
  for (int i = 0; i < w->n_all && last; i++) last = w->all[i] == NULL || w->all[i] == t;
  free_spent(w, last);
  if (x->before != NULL) x->device->vt->event_free(x->device, x->before);
  if (x->after != NULL) x->device->vt->event_free(x->device, x->after);
  *x = (aci_lane){NULL};
}

void aci_lanes_close(aci_window *w) {
  if (w->stream == NULL) return;
  free_spent(w, true);
  w->device->vt->stream_free(w->device, w->stream);
  w->stream = NULL;
}
