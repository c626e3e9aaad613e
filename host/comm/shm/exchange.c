/* Bytes from ranks to ranks (shm.h): through the slots when they fit, straight out of the giver's
 * heap, else piece by piece through its staging buffers: copy in piece k+1 | copy out piece k of
 * all others, one barrier. Called by gather.c and all_to_all.c. */
#include <string.h>

#include "comm/shm/shm.h"
#include "device/device_impl.h"

static const size_t STREAM_FROM = (size_t)32
                                  /* from here on copies out of staging buffers go around the
                                   * caches */
                                  << 20;

typedef struct pieces {
  size_t step;  /* bytes of a piece */
  size_t slice; /* between receivers in a staging buffer */
  int64_t n;
} pieces;

static unsigned char *buffer(const aci_shm_call *c, int s, int64_t k) {
  return aci_shm_stage_of(c, s)->in[(c->s->pieces + (uint64_t)k) & 1];
}

/* The rest of `all` bytes from piece k on, at most a piece. */
static size_t piece(const pieces *p, size_t all, int64_t k) {
  const size_t from = (size_t)k * p->step;
  return from >= all ? 0 : all - from < p->step ? all - from : p->step;
}

static void copy_in(const aci_shm_transfer *m, const pieces *p, int64_t k) {
  aci_shm_call *c = m->c;
  unsigned char *in = buffer(c, c->me, k);
  const char *from = (const char *)m->from + (size_t)k * p->step;
  if (!m->split) {
    const size_t n = piece(p, m->largest(m, c->me), k);
    if (n > 0) memcpy(in, from, n);
    return;
  }
  for (int r = 0; r < c->n; r++) {
    size_t at;
    const size_t n = r == c->me ? 0 : piece(p, m->sent(m, c->me, r, &at), k);
    if (n > 0) memcpy(in + (size_t)r * p->slice, from + at, n);
  }
}

static ac_status copy_out(const aci_shm_transfer *m, const pieces *p, int64_t k, ac_err *e) {
  aci_shm_call *c = m->c;
  for (int i = 1; i < c->n; i++) {
    const int s = (c->me + i) % c->n; /* not all from the same one at once */
    const aci_desc *d = c->s->desc[s];
    size_t at;
    const size_t all = m->sent(m, s, c->me, &at);
    if (all == 0) continue;
    char *to = (char *)m->to + m->place(m, s);
    if (d->where_send == ACI_PRIVATE) {
      const size_t n = piece(p, all, k);
      const unsigned char *from = buffer(c, s, k) + (m->split ? (size_t)c->me * p->slice : 0);
      if (all >= STREAM_FROM) aci_copy_streamed(to + (size_t)k * p->step, from, n);
      else if (n > 0) memcpy(to + (size_t)k * p->step, from, n);
    } else if (k == 0 && d->where_send == ACI_IN_SLOT) {
      memcpy(to, aci_shm_data(c, s) + m->slot_at + at, all);
    } else if (k == 0) {
      unsigned char *heap;
      AC_TRY(aci_shm_heap(c, s, d->at_send + at, all, &heap, e));
      AC_TRY(aci_shm_copy(c, to, heap, all, e));
    }
  }
  return AC_OK;
}

/* Shows the own bytes before the meeting. */
static ac_status offer(aci_shm_transfer *m, const pieces *p, ac_err *e) {
  aci_shm_call *c = m->c;
  c->d->where_send = ACI_IN_SLOT;
  c->in_slot = m->slot_at;
  if (m->largest(m, c->me) == 0) return AC_OK;
  if (m->from_bytes <= ACI_INLINE - m->slot_at) {
    memcpy(c->data + m->slot_at, m->from, m->from_bytes);
    c->in_slot += m->from_bytes;
    return AC_OK;
  }
  c->d->where_send = aci_shm_where(c, m->from, m->from_bytes, &c->d->at_send);
  if (c->d->where_send != ACI_PRIVATE) return AC_OK;
  AC_TRY(aci_shm_stage(c, e));
  copy_in(m, p, 0);
  return AC_OK;
}

ac_status aci_shm_exchange(aci_shm_transfer *m, ac_err *e) {
  aci_shm_call *c = m->c;
  pieces p = {.step = ACI_CHUNK};
  if (m->split) p.step = p.slice = (size_t)ACI_CHUNK / (size_t)c->n & ~(size_t)63;
  AC_TRY(offer(m, &p, e));
  AC_TRY(aci_shm_meet(c, e));
  if (m->met != NULL) AC_TRY(m->met(m, e));

  bool heap = false;
  for (int s = 0; s < c->n; s++) {
    const size_t most = m->largest(m, s);
    const uint8_t where = c->s->desc[s]->where_send;
    heap |= most > 0 && where == ACI_IN_HEAP;
    if (where == ACI_PRIVATE && (int64_t)((most + p.step - 1) / p.step) > p.n)
      p.n = (int64_t)((most + p.step - 1) / p.step);
  }
  size_t at;
  const size_t own = m->sent(m, c->me, c->me, &at);
  if (own > 0) {
    const char *from = (const char *)m->from + at;
    char *to = (char *)m->to + m->place(m, c->me);
    if (from != to) memmove(to, from, own);
  }
  const bool gives = m->largest(m, c->me) > 0 && c->d->where_send == ACI_PRIVATE;
  for (int64_t k = 0; k == 0 || k < p.n; k++) {
    if (gives && k + 1 < p.n) copy_in(m, &p, k + 1);
    AC_TRY(copy_out(m, &p, k, e));
    if (k + 1 < p.n || heap) AC_TRY(aci_shm_barrier(c, e));
  }
  c->s->pieces += (uint32_t)p.n;
  return AC_OK;
}
