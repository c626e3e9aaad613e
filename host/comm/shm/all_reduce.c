/* all_reduce, reduce and reduce_scatter.
 *
 * Every rank reduces its share of the elements over all buffers and hands the result to those who
 * want it:
 *
 *   small    buffers travel in the slots. Each rank that needs the result reduces all of it itself
 *   heap     shares are cut from the whole. The owner reads all buffers and writes all results in
 *            place
 *   staged   step k: copy in piece k+1 | reduce the own share of piece k | copy out piece k-1, then
 *            one barrier. The own share is neither copied in nor out. Buffers in a heap are read
 *            and written there
 *
 * For reduce_scatter the shares are the parts themselves, for reduce only the root takes
 * results. */
#include <string.h>

#include "comm/reduce.h"
#include "comm/shm/shm.h"
#include "device/device_impl.h"

/* From here on results that lie elsewhere than their sources go around the caches. */
static const size_t STREAM_FROM = (size_t)32 << 20, BLOCK = (size_t)64 << 20;

typedef struct plan {
  aci_shm_call *c;
  bool scatter; /* reduce_scatter */
  int64_t step; /* elements of a share in one piece. INT64_MAX: everything is one piece */
  int64_t pieces;
  size_t slice; /* bytes between the shares of a staging buffer */
  bool far;     /* staged results, including the own share, are copied out around the caches */
} plan;

typedef struct share {
  int64_t at, count;
} share;

static bool takes(const plan *p, int r) {
  return p->c->c->kind != AC_COLL_REDUCE || r == p->c->c->root;
}

/* Elements of rank r's share of piece k. Cuts lie at multiples of 64 bytes. */
static share share_of(const plan *p, int64_t k, int r) {
  const ac_coll *c = p->c->c;
  share s;
  if (p->scatter) {
    const int64_t all = aci_part(c, r), from = p->step < INT64_MAX ? k * p->step : 0;
    s.count = all - from < p->step ? all - from : p->step;
    s.at = aci_part_at(c, r) + from;
  } else {
    const int64_t n = p->c->n, line = (int64_t)(64 / p->c->size);
    const int64_t from = p->step < INT64_MAX ? k * p->step * n : 0;
    const int64_t all =
        p->step < INT64_MAX && c->count - from > p->step * n ? p->step * n : c->count - from;
    const int64_t each = ((all + n - 1) / n + line - 1) / line * line;
    s.at = each * r < all ? each * r : all;
    s.count = all - s.at < each ? all - s.at : each;
    s.at += from;
  }
  if (s.count < 0) s.count = 0;
  return s;
}

static int64_t largest_part(const aci_shm_call *c) {
  int64_t most = 0;
  for (int r = 0; r < c->n; r++)
    if (aci_part(c->c, r) > most) most = aci_part(c->c, r);
  return most;
}

static int buffer(const plan *p, int64_t k) { return (int)((p->c->s->pieces + (uint64_t)k) & 1); }

/* Copies the part of this rank's piece k that others reduce to its staging buffer. */
static void copy_in(const plan *p, int64_t k) {
  const aci_shm_call *c = p->c;
  unsigned char *in = c->s->stage->in[buffer(p, k)];
  for (int r = 0; r < c->n; r++) {
    const share s = share_of(p, k, r);
    if (r != c->me && s.count > 0)
      memcpy(in + (size_t)r * p->slice, (const char *)c->c->send + (size_t)s.at * c->size,
             (size_t)s.count * c->size);
  }
}

static ac_status reduce(const plan *p, int64_t k, ac_err *e) {
  aci_shm_call *c = p->c;
  const ac_coll *x = c->c;
  const share s = share_of(p, k, c->me);
  if (s.count == 0) return AC_OK;
  const size_t at = (size_t)s.at * c->size, bytes = (size_t)s.count * c->size;
  const void *src[ACI_MAX_LOCAL];
  void *dst[ACI_MAX_LOCAL];
  int n_dst = 0;
  bool out = false, moves = false; /* moves: some result lies elsewhere than its source */
  /* sources in rank order, which fixes the tree of additions, and the final place of each result */
  for (int r = 0; r < c->n; r++) {
    const aci_desc *d = c->s->desc[r];
    unsigned char *heap = NULL;
    if (r == c->me) {
      src[r] = (const char *)x->send + at;
    } else if (d->where_send == ACI_IN_HEAP) {
      AC_TRY(aci_shm_heap(c, r, d->at_send + at, bytes, &heap, e));
      src[r] = heap;
    } else {
      src[r] = aci_shm_stage_of(c, r)->in[buffer(p, k)] + (size_t)c->me * p->slice;
    }
    if (p->scatter ? r != c->me : !takes(p, r)) continue;
    if (r == c->me && p->far) {
      out = true;
      continue;
    } else if (r == c->me) {
      dst[n_dst++] =
          (char *)x->recv + (p->scatter ? at - (size_t)aci_part_at(x, c->me) * c->size : at);
    } else if (d->where_recv == ACI_IN_HEAP) {
      AC_TRY(aci_shm_heap(c, r, d->at_recv + at, bytes, &heap, e));
      dst[n_dst++] = heap;
    } else {
      out = true;
      continue;
    }
    moves |= dst[n_dst - 1] != src[r];
  }
  /* members without a heap copy the result out of this rank's stage after the next barrier */
  if (out) dst[n_dst++] = c->s->stage->out[buffer(p, k)];
  const bool streamed = moves && !out && bytes * (size_t)n_dst >= STREAM_FROM;
  const int64_t most = (int64_t)(BLOCK / c->size);
  /* in blocks, so that an abort ends a long reduction */
  for (int64_t i = 0; i < s.count; i += most) {
    const int64_t m = s.count - i < most ? s.count - i : most;
    aci_reduce(x->dtype, x->op, c->n, src, n_dst, dst, m, streamed);
    if (i + m == s.count) break;
    for (int r = 0; r < c->n; r++) src[r] = (const char *)src[r] + (size_t)m * c->size;
    for (int r = 0; r < n_dst; r++) dst[r] = (char *)dst[r] + (size_t)m * c->size;
    AC_TRY(aci_aborted(c->g->world, e));
  }
  return AC_OK;
}

/* The shares that others reduced of piece k. */
static void copy_out(const plan *p, int64_t k) {
  const aci_shm_call *c = p->c;
  for (int r = 0; r < c->n; r++) {
    const share s = share_of(p, k, r);
    if (s.count == 0 || (r == c->me && !p->far)) continue;
    char *to = (char *)c->c->recv + (size_t)s.at * c->size;
    const unsigned char *from = aci_shm_stage_of(c, r)->out[buffer(p, k)];
    if (p->far) aci_copy_streamed(to, from, (size_t)s.count * c->size);
    else memcpy(to, from, (size_t)s.count * c->size);
  }
}

static ac_status small(aci_shm_call *c, bool scatter, size_t bytes, ac_err *e) {
  memcpy(c->data, c->c->send, bytes);
  c->d->where_send = ACI_IN_SLOT;
  c->in_slot = bytes;
  AC_TRY(aci_shm_meet(c, e));
  if (c->c->kind == AC_COLL_REDUCE && c->me != c->c->root) return AC_OK;
  const size_t at = scatter ? (size_t)aci_part_at(c->c, c->me) * c->size : 0;
  const void *src[ACI_MAX_LOCAL];
  for (int r = 0; r < c->n; r++) src[r] = aci_shm_data(c, r) + at;
  void *dst = c->c->recv;
  aci_reduce(c->c->dtype, c->c->op, c->n, src, 1, &dst,
             scatter ? aci_part(c->c, c->me) : c->c->count, false);
  return AC_OK;
}

ac_status aci_shm_all_reduce(aci_shm_call *c, ac_err *e) {
  const ac_coll *x = c->c;
  plan p = {.c = c, .scatter = x->kind == AC_COLL_REDUCE_SCATTER, .step = INT64_MAX, .pieces = 1};
  const int64_t total = p.scatter ? aci_total(c->g, x) : x->count;
  const size_t bytes = (size_t)total * c->size;
  if (total == 0) return aci_shm_meet(c, e);
  if (bytes <= ACI_INLINE) return small(c, p.scatter, bytes, e);

  c->d->where_send = aci_shm_where(c, x->send, bytes, &c->d->at_send);
  if (!p.scatter && takes(&p, c->me))
    c->d->where_recv = aci_shm_where(c, x->recv, bytes, &c->d->at_recv);
  p.slice = (size_t)ACI_CHUNK / (size_t)c->n & ~(size_t)63;
  const int64_t slice_step = (int64_t)(p.slice / c->size);
  /* the first piece can be read as soon as all are here */
  if (c->d->where_send == ACI_PRIVATE && c->n > 1) {
    AC_TRY(aci_shm_stage(c, e));
    p.step = slice_step;
    copy_in(&p, 0);
    p.step = INT64_MAX;
  }
  AC_TRY(aci_shm_meet(c, e));

  /* all members decide alike, from the descriptors that they have compared: the number of barriers
   * must be the same */
  bool send_heap = false, all_heap = true;
  for (int r = 0; r < c->n; r++) {
    const aci_desc *d = c->s->desc[r];
    send_heap |= d->where_send == ACI_IN_HEAP;
    all_heap &= d->where_send == ACI_IN_HEAP &&
                (p.scatter || !takes(&p, r) || d->where_recv == ACI_IN_HEAP);
  }
  all_heap |= c->n == 1;
  if (!all_heap) {
    AC_TRY(aci_shm_stage(c, e));
    p.step = slice_step;
    const int64_t all = p.scatter ? largest_part(c) : total,
                  each = p.scatter ? p.step : p.step * c->n;
    p.pieces = (all + each - 1) / each;
  }
  const bool gets = !all_heap && !p.scatter && takes(&p, c->me) && c->d->where_recv == ACI_PRIVATE;
  p.far = gets && bytes >= STREAM_FROM && x->send != x->recv;
  for (int64_t k = 0; k < p.pieces; k++) {
    if (c->d->where_send == ACI_PRIVATE && k + 1 < p.pieces) copy_in(&p, k + 1);
    AC_TRY(reduce(&p, k, e));
    if (gets && k > 0) copy_out(&p, k - 1);
    /* the last barrier keeps users from writing to buffers that others still read or write */
    if (k + 1 < p.pieces || !p.scatter || send_heap) AC_TRY(aci_shm_barrier(c, e));
  }
  if (gets) copy_out(&p, p.pieces - 1);
  if (!all_heap) c->s->pieces += (uint32_t)p.pieces;
  return AC_OK;
}
