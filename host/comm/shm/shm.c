/* The backend "shm" (shm.h): joining, leaving, groups, and which algorithm serves which collective.
 * Called through its table. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/shm/shm.h"

enum { NAP = 10000000 };

/* ---- joining ---- */
static ac_status wait_for(ac_world *w, int i, int64_t began, ac_err *e) {
  aci_page *p = aci_page_of(w->segment.head, i);
  for (;;) {
    const uint32_t state = atomic_load_explicit(&p->state, memory_order_acquire);
    if (state == ACI_RUNNING || state == ACI_LEFT) return AC_OK;
    AC_TRY(aci_aborted(w, e));
    const int64_t now = aci_now_ns(), limit = atomic_load(&w->timeout_ns);
    if (state != ACI_ABSENT && now - began > NAP) { /* whoever ended it may be about to say why */
      aci_page page;
      aci_page_read(p, &page);
      return aci_stop(w, AC_PEER, aci_global_of(w, i), e,
                      "rank %d ended before all ranks had joined%s%s", aci_global_of(w, i),
                      page.last[0] != 0 ? ": " : "", page.last);
    }
    if (limit > 0 && now - began > limit)
      return aci_stop(w, AC_TIMEOUT, aci_global_of(w, i), e,
                      "rank %d has not joined within %.3g s; raise --timeout if it is only slow",
                      aci_global_of(w, i), (double)limit / 1e9);
    aci_futex_wait(&p->state, state, NAP);
  }
}

/* Values that must be the same on all ranks. Every rank finds the same difference. */
static ac_status compare(ac_world *w, ac_err *e) {
  aci_page a, b;
  aci_page_read(aci_page_of(w->segment.head, 0), &a);
  for (int i = 1; i < w->place.local_size; i++) {
    aci_page_read(aci_page_of(w->segment.head, i), &b);
    const int r = aci_global_of(w, 0), s = aci_global_of(w, i);
    if (strcmp(a.version, b.version) != 0)
      return aci_stop(w, AC_MISMATCH, -1, e,
                      "ranks run different versions of accel: rank %d %s, rank %d %s; install one",
                      r, a.version, s, b.version);
    if (a.script_hash != 0 && b.script_hash != 0 && a.script_hash != b.script_hash)
      return aci_stop(w, AC_MISMATCH, -1, e,
                      "ranks run different scripts: rank %d %s, rank %d %s, whose contents differ",
                      r, a.script, s, b.script);
    if (a.heap_span != b.heap_span)
      return aci_stop(
          w, AC_MISMATCH, -1, e,
          "ranks map heaps of different size: rank %d %zu MiB, rank %d %zu MiB; set ulimit -v alike",
          r, a.heap_span >> 20, s, b.heap_span >> 20);
  }
  return AC_OK;
}

static ac_status join(ac_world *w, ac_err *e) {
  if (w->segment.head == NULL || w->page == NULL)
    return AC_FAIL(
        e, INVALID,
        "backend shm: ranks share memory only when accel-run --num_processes starts them");
  if (w->place.size != w->place.local_size || w->place.rank != w->place.local_rank)
    return AC_FAIL(e, INVALID, "backend shm: %d of %d ranks are on this machine; use tcp or mpi",
                   w->place.local_size, w->place.size);
  w->impl = aci_shm_pairs_new(w->place.local_size);
  if (w->impl == NULL) return AC_FAIL(e, OOM, "no memory for the backend's tables");
  w->page->tid = (int32_t)syscall(SYS_gettid);
  atomic_fetch_add(&w->segment.head->joined, 1);
  atomic_store_explicit(&w->page->state, ACI_RUNNING, memory_order_seq_cst);
  aci_futex_wake(&w->page->state);
  const int64_t began = aci_now_ns();
  ac_status st = AC_OK;
  for (int i = 0; i < w->place.local_size && st == AC_OK; i++) st = wait_for(w, i, began, e);
  if (st == AC_OK) st = compare(w, e);
  if (st != AC_OK) {
    aci_shm_pairs_free(w->impl);
    w->impl = NULL;
  }
  return st;
}

static void leave(ac_world *w, const char *site) {
  if (site != NULL) aci_page_set_at(w->page, site, w->page->step);
  uint32_t running = ACI_RUNNING; /* one that failed stays so */
  atomic_compare_exchange_strong(&w->page->state, &running, ACI_LEFT);
  aci_futex_wake(&w->page->state);
  aci_shm_pairs_free(w->impl);
  w->impl = NULL;
}

/* ---- groups ---- */
/* A slot may have served another group before. Its words never go back: the new group counts from
 * the furthest that any member of the old one had come, which they noted when they closed it,
 * before the call in which the new group was made. */
static ac_status group_open(ac_group *g, ac_err *e) {
  ac_world *w = g->world;
  aci_head *h = w->segment.head;
  if (g->slot < 0 || g->slot >= ACI_GROUPS || g->size > ACI_MAX_LOCAL)
    return AC_FAIL(e, UNSUPPORTED, "a group of %d ranks has no place in the segment", g->size);
  const size_t n = (size_t)g->size;
  aci_shm_group *s =
      calloc(1, sizeof *s + n * (sizeof *s->slot + sizeof *s->desc + sizeof *s->local));
  if (s == NULL) return AC_FAIL(e, OOM, "no memory for a group of %d ranks", g->size);
  /* one allocation: the struct and its three arrays */
  s->slot = (aci_slot **)(s + 1);
  s->desc = (const aci_desc **)(s->slot + n);
  s->local = (int *)(s->desc + n);
  for (int r = 0; r < g->size; r++) {
    s->local[r] = aci_local_of(g, r);
    if (s->local[r] < 0) {
      free(s);
      return AC_FAIL(e, UNSUPPORTED, "rank %d is not on this machine", g->ranks[r]);
    }
    s->slot[r] = aci_slot_of(h, g->slot, s->local[r]);
  }
  s->own = s->slot[g->rank];
  s->stage = aci_stage_of(h, g->slot, s->local[g->rank]);
  ac_status st = aci_segment_commit(&w->segment, s->own, sizeof *s->own, e);
  if (st != AC_OK) {
    free(s);
    return st;
  }
  /* the world's slot serves one group only: a rank that failed early may have closed it before
   * others open it */
  s->base = g == w->all ? 0 : atomic_load(&h->base[g->slot]);
  atomic_store(&s->own->arrived, s->base);
  atomic_store(&s->own->phase, s->base);
  /* an abort wakes the sleepers of slots below n_slots only */
  uint32_t used = atomic_load(&h->n_slots);
  while (used <= (uint32_t)g->slot &&
         !atomic_compare_exchange_weak(&h->n_slots, &used, (uint32_t)g->slot + 1)) {
  }
  g->impl = s;
  return AC_OK;
}

static void group_reset(ac_group *g) {
  aci_shm_group *s = g->impl;
  if (s == NULL) return;
  s->base = s->phase = s->pieces = 0;
  atomic_store(&s->own->arrived, 0);
  atomic_store(&s->own->phase, 0);
}

/* Words go back here, which no rank looks at: none is in a call. */
static ac_status reset(ac_world *w, ac_err *e) {
  aci_shm_pairs *fresh = aci_shm_pairs_new(w->place.local_size);
  if (fresh == NULL) return AC_FAIL(e, OOM, "no memory for the backend's tables");
  aci_shm_pairs_reset(w->impl, w);
  aci_shm_pairs_free(w->impl);
  w->impl = fresh;
  group_reset(w->all);
  for (ac_group *g = w->groups; g != NULL; g = g->next) group_reset(g);
  return AC_OK;
}

/* A generation begins: its words count from 0 in the emptied slots. Nothing old can be read or
 * written there, since lost ranks are gone for good and the others wait in ac_world_recover. */
static ac_status reform(ac_world *w, ac_err *e) {
  aci_shm_pairs *fresh = aci_shm_pairs_new(w->place.local_size);
  if (fresh == NULL) return AC_FAIL(e, OOM, "no memory for the backend's tables");
  aci_shm_pairs_free(w->impl);
  w->impl = fresh;
  for (ac_group *g = w->all; g != NULL; g = g == w->all ? w->groups : g->next) {
    free(g->impl);
    g->impl = NULL;
    if (g->rank >= 0) AC_TRY(group_open(g, e));
  }
  return AC_OK;
}

static void raise_base(_Atomic uint32_t *base, uint32_t value) {
  uint32_t have = atomic_load(base);
  while ((int32_t)(value - have) > 0 && !atomic_compare_exchange_weak(base, &have, value)) {
  }
}

static void group_close(ac_group *g) {
  aci_shm_group *s = g->impl;
  if (s == NULL) return;
  _Atomic uint32_t *base = &g->world->segment.head->base[g->slot];
  raise_base(base, s->base + g->seq);
  raise_base(base, s->base + s->phase);
  free(s);
  g->impl = NULL;
}

/* ---- collectives ---- */
static ac_status serve(aci_shm_call *c, ac_err *e) {
  switch (c->c->kind) {
    case AC_COLL_ALL_REDUCE:
    case AC_COLL_REDUCE:
    case AC_COLL_REDUCE_SCATTER: return aci_shm_all_reduce(c, e);
    case AC_COLL_BROADCAST:
    case AC_COLL_ALL_GATHER:
    case AC_COLL_GATHER: return aci_shm_gather(c, e);
    case AC_COLL_SCATTER:
    case AC_COLL_ALL_TO_ALL: return aci_shm_all_to_all(c, e);
    default: return aci_shm_meet(c, e);
  }
}

static ac_status run(ac_group *g, const ac_coll *x, aci_desc *d, ac_err *e) {
  ac_world *w = g->world;
  aci_shm_group *s = g->impl;
  aci_shm_call c = {.g = g, .s = s, .c = x, .d = d, .n = g->size, .me = g->rank};
  c.size = ac_dtype_bytes(x->dtype);
  c.data = s->own->data[d->seq & 1];
  atomic_store_explicit(&w->page->beat,
                        atomic_load_explicit(&w->page->beat, memory_order_relaxed) + 1,
                        memory_order_relaxed);
  ac_err own;
  if (e == NULL) e = &own;
  AC_TRY(aci_aborted(w, e)); /* one that comes late might find all others arrived */
  const ac_status st = serve(&c, e);
  if (st != AC_OK &&
      /* something of this rank alone: the others would wait for it */
      aci_aborted(w, NULL) == AC_OK) {
    char text[512], what[160];
    snprintf(text, sizeof text, "rank %d failed in %s: %.*s", w->place.rank,
             aci_desc_text(d, what, sizeof what), 300, e->msg);
    aci_abort(w, AC_PEER, w->place.rank, text);
  }
  return st;
}

const aci_backend aci_shm_backend = {
    .struct_size = sizeof(aci_backend),
    .name = "shm",
    .join = join,
    .leave = leave,
    .group_open = group_open,
    .group_close = group_close,
    .run = run,
    .send_recv = aci_shm_send_recv,
    .rings = true,
    .reset = reset,
    .reform = reform,
};
