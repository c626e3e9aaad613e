/* Waits for the words of other ranks' slots: sleep on a futex, look around now and then. The short
 * spin before is in comm_impl.h and shm/. */
#include "comm/wait.h"

#include <sched.h>
#include <string.h>

enum { FIRST_NAP = 1000000, LONGEST_NAP = 10000000 };

static _Atomic uint32_t *word_of(const ac_group *g, int group_rank, size_t offset,
                                 aci_slot **slot) {
  aci_slot *s = aci_slot_of(g->world->segment.head, g->slot, aci_local_of(g, group_rank));
  if (slot != NULL) *slot = s;
  return (_Atomic uint32_t *)(void *)((char *)s + offset);
}

static inline bool reached(const _Atomic uint32_t *word, uint32_t value) {
  return (int32_t)(atomic_load_explicit(word, memory_order_acquire) - value) >= 0;
}

void aci_wait_show(const aci_waiting *k, bool again) {
  aci_page *p = k->g->world->page;
  if (p == NULL) return;
  aci_page_lock(p);
  if (!again) {
    p->want = *k->mine;
    p->since = k->began;
    p->kind = (uint32_t)k->kind;
    if (k->mine->site[0] != 0) memcpy(p->at, k->mine->site, sizeof p->at);
    if (++p->n_waits == 0) p->n_waits = 1;
  }
  memcpy(p->missing, k->missing, sizeof p->missing);
  atomic_store_explicit(&p->checked_at, k->now, memory_order_relaxed);
  atomic_store_explicit(&p->waiting, p->n_waits, memory_order_relaxed);
  aci_page_unlock(p);
}

void aci_wait_over(ac_world *w) {
  aci_page *p = w->page;
  if (p != NULL && atomic_load_explicit(&p->waiting, memory_order_relaxed) != 0)
    atomic_store_explicit(&p->waiting, 0, memory_order_release);
}

typedef struct want {
  size_t offset;
  uint32_t value;
} want;

static bool has_come(const aci_waiting *k, int local_rank) {
  const want *x = k->arg;
  const aci_slot *s = aci_slot_of(k->g->world->segment.head, k->g->slot, local_rank);
  return reached((const _Atomic uint32_t *)(const void *)((const char *)s + x->offset), x->value);
}

/* Sleeps until the word of the first missing one changes, or for a nap. */
static void nap(const aci_waiting *k, const want *x, int64_t ns) {
  aci_slot *s;
  _Atomic uint32_t *word = word_of(k->g, k->first, x->offset, &s);
  atomic_fetch_add(&s->sleepers, 1);
  const uint32_t v = atomic_load(word);
  if ((int32_t)(v - x->value) < 0) aci_futex_wait(word, v, ns);
  atomic_fetch_sub(&s->sleepers, 1);
}

/* Ranks that share cores: the awaited rank may be next in line for this core. A few turns for
 * others cost less than going to sleep and being woken. After them the others have longer work. */
static void let_others_run(const aci_waiting *k, const want *x) {
  enum { TURNS = 32 };
  const ac_group *g = k->g;
  for (int i = 0, r = 0; i < TURNS; i++) {
    while (r < g->size && (!aci_bit(k->missing, aci_local_of(g, r)) ||
                           reached(word_of(g, r, x->offset, NULL), x->value)))
      r++;
    if (r == g->size) return;
    sched_yield();
  }
}

/* only: the one group rank to wait for, -1: all others. */
static ac_status wait_for(ac_group *g, int only, size_t offset, uint32_t value,
                          const aci_desc *mine,
                          ac_status (*came)(void *arg, int group_rank, ac_err *e), void *arg,
                          ac_err *e) {
  ac_world *w = g->world;
  want x = {offset, value};
  aci_deadlock_probe probe;
  probe.checked_at = 0;
  probe.n = 0;
  /* first the members by bit. Each is removed once its word has come and is not checked again */
  aci_waiting k = {.g = g,
                   .mine = mine,
                   .began = aci_now_ns(),
                   .kind = ACI_WAIT_MEMORY,
                   .came = has_come,
                   .arg = &x,
                   .probe = &probe};
  for (int r = 0; r < g->size; r++)
    if (r != g->rank && (only < 0 || r == only)) aci_bit_set(k.missing, aci_local_of(g, r));
  if (w->spins == 0) let_others_run(&k, &x);
  bool shown = false;
  ac_status st = AC_OK;
  for (int64_t ns = FIRST_NAP;; ns = ns * 2 < LONGEST_NAP ? ns * 2 : LONGEST_NAP) {
    k.now = aci_now_ns(); /* before the check: ranks missing below were missing then */
    k.first = -1;
    for (int r = 0; r < g->size && st == AC_OK; r++) {
      const int i = aci_local_of(g, r);
      if (!aci_bit(k.missing, i)) continue;
      if (reached(word_of(g, r, offset, NULL), value)) {
        aci_bit_clear(k.missing, i);
        if (came != NULL) st = came(arg, r, e);
      } else if (k.first < 0) {
        k.first = r;
      }
    }
    if (st != AC_OK || k.first < 0) break;
    aci_wait_show(&k, shown);
    shown = true;
    /* shown before it is watched: the ring of a deadlock is found from the pages */
    if ((st = aci_watch(&k, e)) != AC_OK) break;
    nap(&k, &x, ns);
  }
  if (shown) aci_wait_over(w);
  return st;
}

ac_status aci_wait_slow(ac_group *g, int peer, _Atomic uint32_t *word, uint32_t value,
                        const aci_desc *mine, ac_err *e) {
  aci_slot *s;
  word_of(g, peer, 0, &s);
  return wait_for(g, peer, (size_t)((char *)word - (char *)s), value, mine, NULL, NULL, e);
}

ac_status aci_wait_all(ac_group *g, size_t offset, uint32_t value, const aci_desc *mine,
                       ac_status (*came)(void *arg, int group_rank, ac_err *e), void *arg,
                       ac_err *e) {
  return wait_for(g, -1, offset, value, mine, came, arg, e);
}

/* Sends and receives are shown only if their backend knows that nothing else is under way
 * (shm/send_recv.c): over sockets a transfer may be under way both ways. */
ac_status aci_wait_check(ac_group *g, const aci_desc *mine, int64_t began, int missing, ac_err *e) {
  ac_world *w = g->world;
  const bool pair = mine->kind == AC_COLL_SEND || mine->kind == AC_COLL_RECV;
  aci_waiting k = {.g = g, .mine = mine, .began = began, .now = aci_now_ns(), .first = missing};
  k.kind = pair || missing < 0 ? ACI_WAIT_SOFT : ACI_WAIT_NETWORK;
  if (missing >= 0 && aci_local_of(g, missing) >= 0)
    aci_bit_set(k.missing, aci_local_of(g, missing));
  if (!pair) {
    aci_watchdog *d = &w->watch;
    const bool again = d->began == began && d->missing == missing;
    if (!again) d->probe.n = 0;
    d->began = began;
    d->missing = missing;
    k.probe = &d->probe;
    aci_wait_show(&k, again);
  }
  return aci_watch(&k, e);
}
