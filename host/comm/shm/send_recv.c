/* Send and receive: a message takes an entry of the mailbox of its pair of ranks.
 *
 *   FREE -> OFFERED   by the sender. Small data is in the entry, or of private memory in the eager
 *                     buffer that the first entries have, and the sender is done
 *   OFFERED -> TAKEN  by the receive that matches it: the oldest of its group and tag, in the order
 *                     of the offers
 *   TAKEN -> READ     when the receiver has all of it, out of the sender's heap or through the
 *                     mailbox's two pieces, which serve one message at a time. The sender frees the
 *                     entry. Messages in the entry or its eager buffer go from OFFERED to FREE
 *
 * When all entries are full of messages that nobody receives yet, the last one carries the message
 * that the receiver's `want` names, so the order in which a rank receives does not matter. Sends
 * that wait for an entry keep their order.
 *
 * Each change that the other side may wait for rings its doorbell. It rings the own one as well if
 * it ends other transfers of this rank than the caller's. */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/shm/shm.h"

enum { AT_ONCE = 16 << 20, LOOK_EVERY = 8 };

typedef struct transfer transfer;
struct transfer {
  transfer *next, *prev; /* all of this rank's */
  /* of its peer: waiting for an entry (sends) or a message (receives), oldest first */
  transfer *later;
  const ac_coll *c;
  const aci_desc *d;
  ac_group *g;
  uint64_t channel;
  int peer;  /* local rank */
  int entry; /* -1: none */
  uint32_t pieces;
  size_t bytes, done;
  bool sends, listed, over, shown;
  uint32_t polls;
  int64_t began;
  aci_deadlock_probe probe;
};

typedef struct peer {
  transfer *first, *first_in; /* sends without an entry. Receives without a message */
  transfer *streams;          /* the send that has the mailbox's pieces */
  uint32_t order, seen;       /* offers made. Offers of the other side that have been checked */
  bool fresh;                 /* a receive came since the last look */
  bool entries, pieces;       /* have their memory */
  bool eager[ACI_EAGER_ENTRIES];
  bool asked; /* a receive from it was there */
} peer;

struct aci_shm_pairs {
  int n;
  transfer *all;
  peer peer[];
};

aci_shm_pairs *aci_shm_pairs_new(int n_local) {
  aci_shm_pairs *p = calloc(1, sizeof *p + (size_t)n_local * sizeof p->peer[0]);
  if (p != NULL) p->n = n_local;
  return p;
}

void aci_shm_pairs_free(aci_shm_pairs *p) {
  if (p == NULL) return;
  for (transfer *t = p->all, *next; t != NULL; t = next) {
    next = t->next;
    free(t);
  }
  free(p);
}

void aci_shm_pairs_reset(const aci_shm_pairs *p, const ac_world *w) {
  const int me = w->place.local_rank;
  for (int i = 0; i < p->n; i++) {
    if (p->peer[i].asked) atomic_store(&aci_mailbox_of(w->segment.head, i, me)->want, 0);
    if (!p->peer[i].entries) continue;
    aci_mailbox *m = aci_mailbox_of(w->segment.head, me, i);
    for (int k = 0; k < ACI_MAILBOX_ENTRIES; k++) atomic_store(&m->entry[k].state, ACI_ENTRY_FREE);
    atomic_store(&m->offers, 0);
  }
}

static aci_shm_pairs *pairs_of(const transfer *t) { return t->g->world->impl; }
static peer *peer_of(const transfer *t) { return &pairs_of(t)->peer[t->peer]; }

static aci_mailbox *mailbox_of(const transfer *t) {
  const ac_world *w = t->g->world;
  return t->sends ? aci_mailbox_of(w->segment.head, w->place.local_rank, t->peer)
                  : aci_mailbox_of(w->segment.head, t->peer, w->place.local_rank);
}

/* ---- lists ---- */
static void append(transfer **at, transfer *t) {
  while (*at != NULL) at = &(*at)->later;
  *at = t;
  t->later = NULL;
  t->listed = true;
}

static void drop(transfer **at, transfer *t) {
  while (*at != t) at = &(*at)->later;
  *at = t->later;
  t->listed = false;
}

static transfer *begin(ac_group *g, const ac_coll *c, const aci_desc *d) {
  transfer *t = calloc(1, sizeof *t);
  if (t == NULL) return NULL;
  aci_shm_pairs *p = g->world->impl;
  t->g = g;
  t->c = c;
  t->d = d;
  t->sends = c->kind == AC_COLL_SEND;
  t->channel = ((uint64_t)g->id + 1) << 32 | (uint32_t)c->tag;
  t->peer = aci_local_of(g, c->root);
  t->entry = -1;
  t->bytes = (size_t)c->count * ac_dtype_bytes(c->dtype);
  t->began = aci_now_ns();
  if ((t->next = p->all) != NULL) t->next->prev = t;
  p->all = t;
  append(t->sends ? &peer_of(t)->first : &peer_of(t)->first_in, t);
  peer_of(t)->fresh |= !t->sends;
  peer_of(t)->asked |= !t->sends;
  return t;
}

static void end(transfer *t) {
  aci_shm_pairs *p = pairs_of(t);
  peer *q = peer_of(t);
  if (t->listed) drop(t->sends ? &q->first : &q->first_in, t);
  if (q->streams == t) q->streams = NULL;
  if (t->shown) aci_wait_over(t->g->world);
  if (t->next != NULL) t->next->prev = t->prev;
  if (t->prev != NULL) t->prev->next = t->next;
  else p->all = t->next;
  free(t);
}

/* ---- doorbells ---- */
static void ring(const transfer *t) {
  aci_doorbell_ring(aci_page_of(t->g->world->segment.head, t->peer));
}
static void ring_own(const transfer *t) { aci_doorbell_ring(t->g->world->page); }

/* ---- send ---- */
/* Whether entry i can take the message whole, from memory that others do not map. */
static bool is_eager(const transfer *t, int i) {
  uint64_t at;
  return i < ACI_EAGER_ENTRIES && t->bytes > ACI_ENTRY_DATA && t->bytes <= ACI_CHUNK &&
         !aci_heap_offset(t->g->world, t->c->send, t->bytes, &at);
}

/* Whether the eager buffer of entry i has its memory, which is requested on first use. It only
 * saves time: without it a message waits for its receiver. */
static bool has_eager(const transfer *t, aci_mailbox *m, int i) {
  peer *q = peer_of(t);
  if (!q->eager[i])
    q->eager[i] =
        aci_segment_commit(&t->g->world->segment, m->eager[i], sizeof m->eager[i], NULL) == AC_OK;
  return q->eager[i];
}

/* Cannot fail: whose step places a message is not always its own. */
static void offer(transfer *t, aci_mailbox *m, int i) {
  peer *q = peer_of(t);
  aci_mailbox_entry *l = &m->entry[i];
  drop(&q->first, t);
  t->entry = i;
  l->order = ++q->order;
  l->channel = t->channel;
  l->desc = *t->d;
  atomic_store_explicit(&l->filled, 0, memory_order_relaxed);
  atomic_store_explicit(&l->emptied, 0, memory_order_relaxed);
  if (t->bytes <= ACI_ENTRY_DATA) {
    l->desc.where_send = ACI_IN_SLOT;
    if (t->bytes > 0) memcpy(l->data, t->c->send, t->bytes);
    t->over = true;
  } else if (is_eager(t, i) && has_eager(t, m, i)) {
    l->desc.where_send = ACI_IN_EAGER;
    memcpy(m->eager[i], t->c->send, t->bytes);
    t->over = true;
  } else {
    uint64_t at = 0;
    l->desc.where_send =
        aci_heap_offset(t->g->world, t->c->send, t->bytes, &at) ? ACI_IN_HEAP : ACI_PRIVATE;
    l->desc.at_send = at;
  }
  atomic_store_explicit(&l->state, ACI_ENTRY_OFFERED, memory_order_release);
  atomic_fetch_add_explicit(&m->offers, 1, memory_order_release);
  ring(t);
}

/* A free entry for a message. Messages that fit an eager buffer take the first entries, others the
 * rest. */
static int free_entry(const transfer *t, aci_mailbox *m) {
  enum { N = ACI_MAILBOX_ENTRIES - 1 };
  const int first = is_eager(t, 0) ? 0 : ACI_EAGER_ENTRIES;
  for (int k = 0; k < N; k++) {
    const int i = (first + k) % N;
    if (atomic_load_explicit(&m->entry[i].state, memory_order_acquire) == ACI_ENTRY_FREE) return i;
  }
  return -1;
}

/* Gives entries to the sends of a peer that have none, oldest first. */
static ac_status place(transfer *asks, ac_err *e) {
  peer *q = peer_of(asks);
  aci_mailbox *m = mailbox_of(asks);
  if (!q->entries)
    AC_TRY(aci_segment_commit(&asks->g->world->segment, m, offsetof(aci_mailbox, eager), e));
  q->entries = true;
  for (int i; q->first != NULL && (i = free_entry(q->first, m)) >= 0;) {
    if (q->first != asks) ring_own(asks);
    offer(q->first, m, i);
  }
  const uint64_t want = q->first == NULL ? 0 : atomic_load_explicit(&m->want, memory_order_acquire);
  if (want == 0 || atomic_load_explicit(&m->entry[ACI_MAILBOX_ENTRIES - 1].state,
                                        memory_order_acquire) != ACI_ENTRY_FREE)
    return AC_OK;
  for (transfer *t = q->first; t != NULL; t = t->later) {
    if (t->channel != want) continue;
    if (t != asks) ring_own(asks);
    offer(t, m, ACI_MAILBOX_ENTRIES - 1);
    break;
  }
  return AC_OK;
}

static ac_status send_step(transfer *t, bool *waits, ac_err *e) {
  peer *q = peer_of(t);
  aci_mailbox *m = mailbox_of(t);
  if (t->entry < 0) AC_TRY(place(t, e));
  *waits = t->entry < 0;
  if (t->entry < 0 || t->over) return AC_OK;
  aci_mailbox_entry *l = &m->entry[t->entry];
  const uint32_t state = atomic_load_explicit(&l->state, memory_order_acquire);
  *waits = state == ACI_ENTRY_OFFERED;
  if (state == ACI_ENTRY_READ) {
    t->over = true;
    atomic_store_explicit(&l->state, ACI_ENTRY_FREE, memory_order_release);
  } else if (state == ACI_ENTRY_TAKEN && l->desc.where_send == ACI_PRIVATE &&
             (q->streams == NULL || q->streams == t)) {
    ac_world *w = t->g->world;
    ac_err why;
    /* the receiver waits for them */
    if (!q->pieces && aci_segment_commit(&w->segment, m->piece, sizeof m->piece, &why) != AC_OK)
      return aci_stop(w, why.code, w->place.rank, e, "rank %d cannot send: %s", w->place.rank,
                      why.msg);
    q->pieces = true;
    q->streams = t;
    while (t->done < t->bytes &&
           t->pieces - atomic_load_explicit(&l->emptied, memory_order_acquire) < 2) {
      const size_t n = t->bytes - t->done < ACI_CHUNK ? t->bytes - t->done : ACI_CHUNK;
      memcpy(m->piece[t->pieces & 1], (const char *)t->c->send + t->done, n);
      t->done += n;
      atomic_store_explicit(&l->filled, ++t->pieces, memory_order_release);
      ring(t);
    }
  }
  return AC_OK;
}

/* ---- receive ---- */
/* The message that was found for a receive. */
static ac_status take(transfer *t, aci_mailbox *m, int i, ac_err *e) {
  aci_mailbox_entry *l = &m->entry[i];
  drop(&peer_of(t)->first_in, t);
  t->entry = i;
  if (l->desc.dtype != t->d->dtype || l->desc.count != t->d->count ||
      l->desc.device != t->d->device) {
    char sent[160], wanted[160];
    ac_world *w = t->g->world;
    return aci_stop(
        w, AC_MISMATCH, -1, e,
        "a message does not match its receive: rank %d in %s, rank %d in %s; %s must be equal",
        aci_global_of(w, t->peer), aci_desc_text(&l->desc, sent, sizeof sent), w->place.rank,
        aci_desc_text(t->d, wanted, sizeof wanted),
        l->desc.device != t->d->device ? "the kind of device" : "dtype and count");
  }
  if (l->desc.where_send != ACI_IN_SLOT && l->desc.where_send != ACI_IN_EAGER) {
    atomic_store_explicit(&l->state, ACI_ENTRY_TAKEN, memory_order_release);
    ring(t);
    return AC_OK;
  }
  if (t->bytes > 0)
    memcpy(t->c->recv, l->desc.where_send == ACI_IN_SLOT ? l->data : m->eager[i], t->bytes);
  t->over = true;
  atomic_store_explicit(&l->state, ACI_ENTRY_FREE, memory_order_release);
  ring(t);
  return AC_OK;
}

/* Finds messages for the receives of a peer, in the order in which they were offered. Only those up
 * to the count that was read before the entries are: of later ones, offered meanwhile, a first may
 * lie in an entry that was looked at already. */
static ac_status match(transfer *asks, ac_err *e) {
  peer *q = peer_of(asks);
  aci_mailbox *m = mailbox_of(asks);
  const uint32_t offers = atomic_load_explicit(&m->offers, memory_order_acquire);
  if (offers == q->seen && !q->fresh) return AC_OK;
  q->seen = offers;
  q->fresh = false;
  int entries[ACI_MAILBOX_ENTRIES], n = 0;
  for (int i = 0; i < ACI_MAILBOX_ENTRIES; i++) {
    if (atomic_load_explicit(&m->entry[i].state, memory_order_acquire) != ACI_ENTRY_OFFERED)
      continue;
    if ((int32_t)(m->entry[i].order - offers) > 0) continue;
    int at = n++;
    for (; at > 0 && (int32_t)(m->entry[entries[at - 1]].order - m->entry[i].order) > 0; at--)
      entries[at] = entries[at - 1];
    entries[at] = i;
  }
  for (int i = 0; i < n && q->first_in != NULL; i++) {
    transfer *t = q->first_in;
    while (t != NULL && t->channel != m->entry[entries[i]].channel) t = t->later;
    if (t == NULL) continue;
    if (t != asks) ring_own(asks);
    AC_TRY(take(t, m, entries[i], e));
  }
  const uint64_t want = q->first_in == NULL ? 0 : q->first_in->channel;
  if (atomic_load_explicit(&m->want, memory_order_relaxed) != want) {
    atomic_store_explicit(&m->want, want, memory_order_release);
    ring(asks);
  }
  return AC_OK;
}

static ac_status recv_step(transfer *t, bool *waits, ac_err *e) {
  aci_mailbox *m = mailbox_of(t);
  if (t->entry < 0) AC_TRY(match(t, e));
  *waits = t->entry < 0;
  if (t->entry < 0 || t->over) return AC_OK;
  aci_mailbox_entry *l = &m->entry[t->entry];
  char *to = t->c->recv;
  if (l->desc.where_send == ACI_IN_HEAP) {
    ac_world *w = t->g->world;
    const unsigned char *heap = aci_heap_base(w, t->peer);
    if (heap == NULL || l->desc.at_send > aci_heap_span(w) ||
        t->bytes > aci_heap_span(w) - l->desc.at_send)
      return aci_stop(w, AC_INTERNAL, w->place.rank, e,
                      "rank %d does not map all of the heap of rank %d", w->place.rank,
                      aci_global_of(w, t->peer));
    const size_t n = t->bytes - t->done < AT_ONCE ? t->bytes - t->done : AT_ONCE;
    memcpy(to + t->done, heap + l->desc.at_send + t->done, n);
    t->done += n;
  } else {
    while (atomic_load_explicit(&l->filled, memory_order_acquire) != t->pieces) {
      const size_t n = t->bytes - t->done < ACI_CHUNK ? t->bytes - t->done : ACI_CHUNK;
      memcpy(to + t->done, m->piece[t->pieces & 1], n);
      t->done += n;
      atomic_store_explicit(&l->emptied, ++t->pieces, memory_order_release);
      ring(t);
    }
  }
  if (t->done < t->bytes) {
    if (l->desc.where_send == ACI_IN_HEAP) ring_own(t); /* more of it is there */
    return AC_OK;
  }
  t->over = true;
  atomic_store_explicit(&l->state, ACI_ENTRY_READ, memory_order_release);
  ring(t);
  return AC_OK;
}

/* ---- both ---- */
/* Shows the transfer on the page as long as the other side has not met it. `now` is before the step
 * that found nothing. */
static ac_status check_wait(transfer *t, int64_t now, ac_err *e) {
  aci_waiting k = {.g = t->g,
                   .mine = t->d,
                   .began = t->began,
                   .now = now,
                   .first = t->c->root,
                   .probe = &t->probe};
  /* the thread that runs the script waits for just this one */
  const bool alone = (int32_t)syscall(SYS_gettid) == t->g->world->page->tid;
  k.kind = alone ? ACI_WAIT_MEMORY : ACI_WAIT_SOFT;
  aci_bit_set(k.missing, t->peer);
  aci_wait_show(&k, t->shown && alone);
  t->shown = true;
  return aci_deadlock(&k, e);
}

ac_status aci_shm_send_recv(ac_group *g, const ac_coll *c, aci_desc *d, void **state, bool *done,
                            ac_err *e) {
  transfer *t = *state;
  ac_status st = aci_aborted(g->world, e);
  if (st == AC_OK && t == NULL && (t = *state = begin(g, c, d)) == NULL)
    st = aci_stop(g->world, AC_PEER, g->world->place.rank, e, "rank %d has no memory for a %s",
                  g->world->place.rank, ac_coll_name(c->kind));
  bool waits = false;
  if (st == AC_OK) {
    const bool look = ++t->polls % LOOK_EVERY == 0;
    const int64_t now = look ? aci_now_ns() : 0;
    st = t->sends ? send_step(t, &waits, e) : recv_step(t, &waits, e);
    if (st == AC_OK && waits && look) st = check_wait(t, now, e);
    if (!waits && t->shown) {
      aci_wait_over(g->world);
      t->shown = false;
    }
  }
  *done = st != AC_OK || t->over;
  if (*done && t != NULL) {
    end(t);
    *state = NULL;
  }
  return st;
}
