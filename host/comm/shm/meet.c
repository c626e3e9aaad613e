/* A meeting of ranks: each shows its descriptor and small data in its slot, raises a word and
 * compares the others' slots. Called by every algorithm of shm/. */
#include <string.h>

#include "comm/shm/shm.h"

enum {
  MISMATCH_GRACE = 20000000, /* ns for the rest to come, so that the message names all sides */
  PREFETCH_MOST = 1024       /* bytes of data */
};

static inline bool reached(const _Atomic uint32_t *word, uint32_t value) {
  return (int32_t)(atomic_load_explicit(word, memory_order_acquire) - value) >= 0;
}

/* ---- descriptors ---- */
static const aci_desc *desc_of(const aci_shm_call *c, int r) {
  return &c->s->slot[r]->desc[c->d->seq & 1];
}

/* Member r is here. Its descriptor stays until it comes to the call after the next. */
static inline bool take(aci_shm_call *c, int r) {
  c->s->desc[r] = desc_of(c, r);
  return aci_desc_same(c->s->desc[r], c->d);
}

static inline void fetch_to_write(const void *p) {
#if defined(__x86_64__)
  /* the builtin gives it only with -mprfchw */
  __asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
  __builtin_prefetch(p, 1);
#endif
}

/* Prefetches this rank's side of the next call, which nobody reads any more, while nobody waits for
 * it: a sixth of the time of 1 KiB. More lines than that get in each other's way. */
static inline void prefetch_next(const aci_shm_call *c) {
  aci_slot *s = c->s->own;
  const unsigned i = (c->d->seq + 1) & 1;
  const size_t n = c->in_slot <= PREFETCH_MOST ? c->in_slot : 0;
  fetch_to_write(&s->desc[i]);
  fetch_to_write((char *)&s->desc[i] + 64);
  for (size_t k = 0; k < n; k += 64) fetch_to_write(s->data[i] + k);
}

static ac_status came(void *arg, int r, ac_err *e) {
  aci_shm_call *c = arg;
  c->differs = !take(c, r);
  return c->differs ? AC_MISMATCH : AC_OK; /* worded by differ() */
}

static ac_status differ(aci_shm_call *c, ac_err *e) {
  const uint32_t value = c->s->base + c->d->seq;
  const int64_t until = aci_now_ns() + MISMATCH_GRACE;
  for (bool all = false; !all && aci_now_ns() < until;) {
    all = true;
    for (int r = 0; r < c->n; r++) {
      if (r == c->me || c->s->desc[r] != NULL) continue;
      if (reached(&c->s->slot[r]->arrived, value)) take(c, r);
      else all = false;
    }
    if (!all) aci_futex_wait(&c->g->world->segment.head->abort_reason.set, 0, 1000000);
  }
  return aci_mismatch(c->g, c->s->desc, e);
}

ac_status aci_shm_meet(aci_shm_call *c, ac_err *e) {
  aci_shm_group *s = c->s;
  const uint32_t value = s->base + c->d->seq;
  s->own->desc[c->d->seq & 1] = *c->d;
  aci_signal(s->own, &s->own->arrived, value);
  s->desc[c->me] = c->d;
  int here = 1;
  for (int r = 0; r < c->n; r++)
    if (r != c->me) s->desc[r] = NULL;
  for (int i = c->g->world->spins; here < c->n; i--) {
    for (int r = 0; r < c->n; r++) {
      if (s->desc[r] != NULL || !reached(&s->slot[r]->arrived, value)) continue;
      if (!take(c, r)) return differ(c, e);
      here++;
    }
    if (here == c->n) break;
    if (i <= 0) {
      const ac_status st = aci_wait_all(c->g, offsetof(aci_slot, arrived), value, c->d, came, c, e);
      return c->differs ? differ(c, e) : st;
    }
    aci_relax();
  }
  prefetch_next(c);
  return AC_OK;
}

ac_status aci_shm_barrier(aci_shm_call *c, ac_err *e) {
  aci_shm_group *s = c->s;
  const uint32_t value = s->base + ++s->phase;
  aci_signal(s->own, &s->own->phase, value);
  int i = c->g->world->spins;
  for (int r = 0; r < c->n; r++) {
    if (r == c->me) continue;
    while (!reached(&s->slot[r]->phase, value)) {
      if (i-- <= 0)
        return aci_wait_all(c->g, offsetof(aci_slot, phase), value, c->d, NULL, NULL, e);
      aci_relax();
    }
  }
  return AC_OK;
}

/* ---- memory ---- */
uint8_t aci_shm_where(const aci_shm_call *c, const void *p, size_t bytes, uint64_t *at) {
  *at = 0;
  return aci_heap_offset(c->g->world, p, bytes, at) ? ACI_IN_HEAP : ACI_PRIVATE;
}

ac_status aci_shm_stage(aci_shm_call *c, ac_err *e) {
  if (c->s->staged) return AC_OK;
  AC_TRY(aci_segment_commit(&c->g->world->segment, c->s->stage, sizeof *c->s->stage, e));
  c->s->staged = true;
  return AC_OK;
}

ac_status aci_shm_heap(const aci_shm_call *c, int r, uint64_t at, size_t bytes, unsigned char **out,
                       ac_err *e) {
  ac_world *w = c->g->world;
  const size_t span = aci_heap_span(w);
  *out = aci_heap_base(w, c->s->local[r]);
  if (*out == NULL || at > span || bytes > span - at)
    return aci_stop(w, AC_INTERNAL, w->place.rank, e,
                    "rank %d maps %zu bytes of the heap of rank %d, whose buffer ends at %llu",
                    w->place.rank, span, c->g->ranks[r], (unsigned long long)(at + bytes));
  *out += at;
  return AC_OK;
}

ac_status aci_shm_copy(const aci_shm_call *c, void *dst, const void *src, size_t bytes, ac_err *e) {
  const size_t step = (size_t)64 << 20;
  for (size_t i = 0; i < bytes; i += step) {
    memcpy((char *)dst + i, (const char *)src + i, bytes - i < step ? bytes - i : step);
    if (bytes - i > step) AC_TRY(aci_aborted(c->g->world, e));
  }
  return AC_OK;
}
