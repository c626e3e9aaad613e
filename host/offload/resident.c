/* The place of one storage's bytes in a device's memory. See offload.h. Called by window.c with the
 * queue's lock held.
 *
 *   a block of the device  bytes are read into it, through page-locked memory if the device is not
 *                          the CPU
 *   the home itself        host memory, and the device is the CPU: nothing is moved, but the bytes
 *                          count as the device's while they are resident, so that limits mean the
 *                          same whatever the device
 *   a map of the file      a read-only file (map.c), counted in the same way. A write gets a block
 *                          of its own */
#include <string.h>

#include "device/capture.h"
#include "device/pool.h"
#include "offload/offload.h"
#include "offload/window.h"
#include "tensor/tensor_impl.h"

bool aci_on_cpu(const aci_window *w) {
  return w->device->kind == AC_DEV_CPU || w->device->kind == AC_DEV_META;
}
bool aci_is_paged(const aci_tiered *t) {
  return t->home.store->tier == ACI_TIER_FILE && t->home.bytes >= ACI_OFFLOAD_LARGE;
}

/* Start of the bytes in a block that has one page to spare, so that file and memory have the same
 * alignment. */
static void *placed(const aci_tiered *t, const ac_block *b) {
  char *p = ac_block_ptr(b);
  if (!aci_is_paged(t) || p == NULL) return p; /* meta has no addresses */
  return p + (-(uintptr_t)p & (ACI_OFFLOAD_PAGE - 1)) + t->home.at % ACI_OFFLOAD_PAGE;
}

/* Foreign files may have bytes at which no element can begin. Those are moved after reading.
 * Kernels ask for no more than that. */
static bool lies_well(const aci_tiered *t) { return t->home.at % 8 == 0; }

bool aci_is_at_home(const aci_window *w, const aci_tiered *t) {
  const aci_store *s = t->home.store;
  return s->tier == ACI_TIER_HOST && w->device->kind == (s->phantom ? AC_DEV_META : AC_DEV_CPU);
}

static ac_status block_for(aci_window *w, const aci_tiered *t, ac_mem_class c, ac_block **out,
                           ac_err *e) {
  const size_t room = aci_is_paged(t) ? t->home.bytes + 3 * ACI_OFFLOAD_PAGE : t->home.bytes;
  return ac_block_alloc(w->device, room, c, NULL, out, e);
}

void aci_resident_unmap(aci_tiered *t) {
  aci_map_free(t->map, t->map_bytes);
  t->map = NULL;
  t->filled = false;
}

void aci_resident_drop(aci_window *w, aci_tiered *t) {
  aci_resident_unstage(w, t);
  if (t->block != NULL) w->stats.resident_bytes -= t->home.bytes;
  ac_block_free(t->block);
  t->block = NULL;
  t->in_place = false;
  t->ptr = t->io = NULL;
  t->state = ACI_OUT;
}

/* The present place of the bytes, if they can be used there. Otherwise NULL. */
static void *place_of(aci_window *w, aci_tiered *t) {
  const aci_store *s = t->home.store;
  if (aci_is_at_home(w, t)) return ac_block_ptr(t->home.block);
  if (w->device->kind != AC_DEV_CPU || !aci_is_paged(t) || !lies_well(t) || w->queue->no_map ||
      s->no_map || t->no_map)
    return NULL;
  if (t->map == NULL && !aci_map_make(&t->home, &t->map, &t->map_bytes)) return NULL;
  return aci_map_place(t->map, &t->home);
}

ac_status aci_resident_make(aci_window *w, aci_tiered *t, ac_err *e) {
  const bool cached = aci_map_is_cached(w->queue, t->home.store); /* also decides for transfers */
  const bool at_home = aci_is_at_home(w, t);
  t->ptr = at_home || cached ? place_of(w, t) : NULL;
  t->in_place = at_home || t->ptr != NULL;
  ac_status st = t->in_place ? aci_block_wrap(w->device, t->ptr, t->home.bytes, &t->block, e)
                             : block_for(w, t, AC_MEM_ACTIVATION, &t->block, e);
  if (st != AC_OK) {
    t->in_place = false;
    t->ptr = NULL;
    return st;
  }
  w->stats.resident_bytes += t->home.bytes;
  if (w->stats.resident_bytes > w->stats.peak_bytes) w->stats.peak_bytes = w->stats.resident_bytes;
  t->io = t->ptr;
  if (t->in_place) return AC_OK;
  t->no_map = false;
  t->ptr = placed(t, t->block);
  t->io = t->ptr;
  if (aci_on_cpu(w)) {
    if (!lies_well(t)) t->ptr = ac_block_ptr(t->block);
    return AC_OK;
  }
  t->ptr = ac_block_ptr(t->block);
  st = aci_resident_stage(w, t, e);
  if (st != AC_OK) aci_resident_drop(w, t);
  return st;
}

ac_status aci_resident_stage(aci_window *w, aci_tiered *t, ac_err *e) {
  /* before streams are drawn into a recording */
  AC_TRY(aci_capture_refuse(w->device, "a tensor moves between tiers of memory (offload)", e));
  AC_TRY(block_for(w, t, AC_MEM_PINNED, &t->stage, e));
  t->io = placed(t, t->stage);
  const ac_status st = aci_lane_open(w, t, e);
  if (st != AC_OK) aci_resident_unstage(w, t);
  return st;
}

void aci_resident_unstage(aci_window *w, aci_tiered *t) {
  aci_lane_end(w, t);
  ac_block_free(t->stage);
  t->stage = NULL;
  t->io = t->ptr;
}

ac_status aci_resident_arrive(aci_window *w, aci_tiered *t, ac_err *e) {
  ac_status st = AC_OK;
  if (t->lane.under_way) {
    st = aci_lane_arrive(w, t, e);
    t->io = t->ptr;
  } else if (t->stage != NULL) {
    st = aci_device_upload(w->device, NULL, t->ptr, t->io, t->home.bytes, e);
    ac_block_free(t->stage);
    t->stage = NULL;
    t->io = t->ptr;
  } else if (t->io != t->ptr) {
    memmove(t->ptr, t->io, t->home.bytes);
    t->io = t->ptr;
  }
  if (st == AC_OK) t->state = ACI_IN;
  return st;
}

void aci_resident_own(aci_window *w, aci_tiered *t) {
  ac_block *own;
  ac_err ignored;
  if (t->block != NULL) w->stats.resident_bytes -= t->home.bytes;
  ac_block_free(t->block); /* a limit need not have room for both. The bytes stay in place */
  t->block = NULL;
  /* it stays mapped: the system keeps the pages that were written */
  if (block_for(w, t, AC_MEM_ACTIVATION, &own, &ignored) != AC_OK) {
    if (aci_block_wrap(w->device, t->ptr, t->home.bytes, &t->block, &ignored) == AC_OK)
      w->stats.resident_bytes += t->home.bytes;
    return;
  }
  void *to = placed(t, own);
  memcpy(to, t->ptr, t->home.bytes);
  aci_resident_unmap(t);
  t->block = own;
  w->stats.resident_bytes += t->home.bytes;
  t->ptr = t->io = to;
  t->in_place = false;
}
