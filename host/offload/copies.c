/* Copies between page-locked memory and a device, on a stream of the window's own, beside what the device computes. See offload.h.
 *
 * To the device: the I/O thread reads the bytes into page-locked memory and gives their copy to the stream, behind the work that used the device's
 * memory before; the compute stream waits for it when the bytes are used, the host never. Its page-locked memory is kept until the copy is through.
 * From the device: the copy is given to the stream at once, behind the work that wrote the bytes; the I/O thread waits for it and writes them home.
 * Devices without streams copy in the order of their work. Called with the queue's lock held, but for aci_lane_up and aci_lane_down. */
#include <time.h>

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
  x->copied = false;
  return vt->event_record(w->device, x->before, NULL, e);
}

ac_status aci_lane_up(aci_lane *x, const void *from, size_t bytes, ac_err *e) {
  const ac_device_vtable *vt = x->device->vt;
  AC_TRY(vt->stream_wait(x->device, x->stream, x->before, e));
  AC_TRY(vt->copy(x->device, x->stream, x->there, from, bytes, e));
  x->copied = true;
  return vt->event_record(x->device, x->after, x->stream, e);
}

ac_status aci_lane_start_down(aci_lane *x, void *to, size_t bytes, ac_err *e) {
  const ac_device_vtable *vt = x->device->vt;
  AC_TRY(vt->stream_wait(x->device, x->stream, x->before, e));
  AC_TRY(vt->copy(x->device, x->stream, to, x->there, bytes, e));
  return vt->event_record(x->device, x->after, x->stream, e);
}

ac_status aci_lane_down(aci_lane *x, ac_err *e) {
  const struct timespec nap = {0, 20000};
  for (;;) {
    bool done = false;
    AC_TRY(x->device->vt->event_query(x->device, x->after, &done, e));
    if (done) return AC_OK;
    nanosleep(&nap, NULL);
  }
}

static void free_spent(aci_window *w, bool all) {
  int n = 0;
  if (all && w->n_spent > 0) w->device->vt->sync(w->device, w->stream, NULL);
  for (int i = 0; i < w->n_spent; i++) {
    bool done = all;
    if (!all && w->device->vt->event_query(w->device, w->spent[i].after, &done, NULL) != AC_OK) done = false;
    if (!done) {
      w->spent[n++] = w->spent[i];
      continue;
    }
    ac_block_free(w->spent[i].block);
    w->device->vt->event_free(w->device, w->spent[i].after);
  }
  w->n_spent = n;
}

ac_status aci_lane_arrive(aci_window *w, aci_tiered *t, ac_err *e) {
  aci_lane *x = &t->lane;
  if (!x->copied) return AC_OK;
  const ac_status st = x->device->vt->stream_wait(x->device, NULL, x->after, e);
  free_spent(w, w->n_spent == ACI_SPENT || st != AC_OK);
  if (st != AC_OK) x->device->vt->sync(x->device, x->stream, NULL);
  x->copied = false;
  w->spent[w->n_spent++] = (aci_spent){t->stage, x->after};
  t->stage = NULL;
  x->after = NULL;
  return st;
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
