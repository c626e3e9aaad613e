/* all_reduce, reduce and reduce_scatter over messages. Called by run.c.
 *
 * Small: every rank that needs the result gets the buffers of all and reduces them itself, one
 * message deep. Large: the buffer is cut into shares, one per rank. Each rank gets its share from
 * all, reduces it in the tree's order, and sends the result to its owners. Shares travel in pieces,
 * two under way at a time, so that reducing one piece overlaps the travel of the next and memory
 * stays bounded. */
#include <stdlib.h>
#include <string.h>

#include "comm/link/run.h"
#include "comm/reduce.h"

enum { FEW_RANKS = 64, ROOM = 4 << 20, LEAST_PIECE = 64 << 10, LINE = 64 };

typedef struct shares {
  aci_run *x;
  int64_t *lo, *n; /* of each rank's share, in elements */
  int64_t piece;   /* elements */
  int64_t rounds;  /* of the longest share */
  /* others' parts of our share, and results that have no place in recv */
  unsigned char *in[2], *out[2];
  size_t in_bytes; /* of one rank's in in[] */
  const void **src;
} shares;

static bool wants_result(const aci_run *x, int r) {
  return x->c->kind == AC_COLL_ALL_REDUCE || r == x->c->root;
}

/* ---- small ---- */
static ac_status reduce_small(aci_run *x, ac_err *e) {
  const aci_run *const v = x;
  const int me = x->g->rank, size = x->g->size;
  const size_t bytes = (size_t)x->c->count * x->width;
  const bool gets = wants_result(v, me);
  const void *src[FEW_RANKS];
  unsigned char *in = gets ? malloc(bytes * (size_t)(size - 1) + 1) : NULL;
  if (gets && in == NULL)
    return AC_FAIL(e, OOM, "%s: no memory for the buffers of %d ranks", ac_coll_name(x->c->kind),
                   size);
  aci_batch *b = &x->batch[0];
  ac_status st = aci_run_room(x, 1, 2 * (size - 1), e);
  src[me] = x->c->send;
  for (int i = 1; i < size && st == AC_OK; i++) {
    const int to = aci_run_peer(x, i), from = aci_run_peer(x, size - i);
    if (wants_result(v, to)) st = aci_run_send(x, b, to, x->c->send, bytes, e);
    if (!gets || st != AC_OK) continue;
    unsigned char *p = in + bytes * (size_t)(i - 1);
    src[from] = p;
    st = aci_run_recv(x, b, from, p, bytes, e);
  }
  if (st == AC_OK) st = aci_run_meet(x, e);
  if (st == AC_OK) st = aci_run_wait(x, b, e);
  if (st == AC_OK && gets)
    aci_reduce(x->c->dtype, x->c->op, size, src, 1, (void *const[]){x->c->recv}, x->c->count,
               false);
  aci_run_drop(x);
  free(in);
  return st;
}

/* ---- large ---- */
/* Elements of rank r's share in round k. */
static int64_t length(const shares *s, int r, int64_t k) {
  const int64_t left = s->n[r] - k * s->piece;
  return left <= 0 ? 0 : left < s->piece ? left : s->piece;
}

static void cut(shares *s) {
  const aci_run *x = s->x;
  const int size = x->g->size;
  int64_t longest = 0, at = 0;
  if (x->c->kind == AC_COLL_REDUCE_SCATTER) {
    for (int r = 0; r < size; r++) {
      s->lo[r] = at;
      at += s->n[r] = aci_part(x->c, r);
    }
  } else {
    const int64_t unit = LINE / (int64_t)x->width, count = x->c->count;
    const int64_t each = ((count + size - 1) / size + unit - 1) / unit * unit;
    for (int r = 0; r < size; r++) {
      s->lo[r] = at;
      s->n[r] = count - at < each ? count - at : each;
      at += s->n[r];
    }
  }
  for (int r = 0; r < size; r++)
    if (s->n[r] > longest) longest = s->n[r];
  int64_t bytes = ROOM / (size - 1);
  bytes = bytes < LEAST_PIECE ? LEAST_PIECE : bytes > ACI_PIECE ? ACI_PIECE : bytes;
  s->piece = bytes / (int64_t)x->width;
  s->rounds = (longest + s->piece - 1) / s->piece;
}

/* The place for the results of our share in round k. */
static void *own_result(const shares *s, int64_t k) {
  const aci_run *x = s->x;
  if (x->c->kind == AC_COLL_REDUCE_SCATTER) return aci_at(x->c->recv, k * s->piece, x->width);
  if (!wants_result(x, x->g->rank)) return s->out[k & 1];
  return aci_at(x->c->recv, s->lo[x->g->rank] + k * s->piece, x->width);
}

static ac_status start_exchange(shares *s, int64_t k, ac_err *e) {
  aci_run *x = s->x;
  aci_batch *b = &x->batch[k & 1];
  const size_t mine = (size_t)length(s, x->g->rank, k) * x->width;
  for (int i = 1; i < x->g->size; i++) {
    const int to = aci_run_peer(x, i), from = aci_run_peer(x, x->g->size - i);
    AC_TRY(aci_run_recv(x, b, from, s->in[k & 1] + s->in_bytes * (size_t)(i - 1), mine, e));
    AC_TRY(aci_run_send(x, b, to, aci_at(x->c->send, s->lo[to] + k * s->piece, x->width),
                        (size_t)length(s, to, k) * x->width, e));
  }
  return AC_OK;
}

static void reduce_own(shares *s, int64_t k) {
  aci_run *x = s->x;
  const int me = x->g->rank;
  const int64_t n = length(s, me, k);
  if (n == 0) return;
  for (int i = 1; i < x->g->size; i++)
    s->src[aci_run_peer(x, x->g->size - i)] = s->in[k & 1] + s->in_bytes * (size_t)(i - 1);
  s->src[me] = aci_at(x->c->send, s->lo[me] + k * s->piece, x->width);
  aci_reduce(x->c->dtype, x->c->op, x->g->size, s->src, 1, (void *const[]){own_result(s, k)}, n,
             false);
}

static ac_status start_results(shares *s, int64_t k, ac_err *e) {
  aci_run *x = s->x;
  aci_batch *b = &x->batch[2 + (k & 1)];
  const int me = x->g->rank;
  if (x->c->kind == AC_COLL_REDUCE_SCATTER) return AC_OK;
  for (int i = 1; i < x->g->size; i++) {
    const int to = aci_run_peer(x, i), from = aci_run_peer(x, x->g->size - i);
    if (wants_result(x, me))
      AC_TRY(aci_run_recv(x, b, from, aci_at(x->c->recv, s->lo[from] + k * s->piece, x->width),
                          (size_t)length(s, from, k) * x->width, e));
    if (wants_result(x, to))
      AC_TRY(aci_run_send(x, b, to, own_result(s, k), (size_t)length(s, me, k) * x->width, e));
  }
  return AC_OK;
}

static ac_status run_shares(shares *s, ac_err *e) {
  aci_run *x = s->x;
  if (s->rounds > 0) AC_TRY(start_exchange(s, 0, e));
  for (int64_t k = 0; k < s->rounds; k++) {
    if (k + 1 < s->rounds) AC_TRY(start_exchange(s, k + 1, e));
    AC_TRY(aci_run_wait(x, &x->batch[k & 1],
                        e)); /* our own pieces have left as well: their place takes results now */
    reduce_own(s, k);
    AC_TRY(start_results(s, k, e));
    if (k > 0) AC_TRY(aci_run_wait(x, &x->batch[2 + ((k - 1) & 1)], e));
  }
  return s->rounds > 0 ? aci_run_wait(x, &x->batch[2 + ((s->rounds - 1) & 1)], e) : AC_OK;
}

static ac_status reduce_large(aci_run *x, ac_err *e) {
  const int size = x->g->size, me = x->g->rank;
  shares s = {.x = x};
  ac_status st = AC_OK;
  unsigned char *room = NULL;
  s.lo = malloc((size_t)size * 2 * sizeof *s.lo);
  s.src = malloc((size_t)size * sizeof *s.src);
  if (s.lo != NULL && s.src != NULL) {
    s.n = s.lo + size;
    cut(&s);
    const int64_t most = s.n[me] < s.piece ? s.n[me] : s.piece;
    s.in_bytes = ((size_t)most * x->width + LINE - 1) / LINE * LINE;
    const bool needs_out = x->c->kind == AC_COLL_REDUCE && me != x->c->root;
    const size_t per = s.in_bytes * (size_t)(size - 1 + needs_out);
    room = malloc(2 * per + 1);
    for (int i = 0; i < 2 && room != NULL; i++) {
      s.in[i] = room + per * (size_t)i;
      s.out[i] = s.in[i] + s.in_bytes * (size_t)(size - 1);
    }
  }
  if (room == NULL)
    st =
        AC_FAIL(e, OOM, "%s: no memory for the pieces of %d ranks", ac_coll_name(x->c->kind), size);
  if (st == AC_OK) st = aci_run_room(x, 4, 2 * (size - 1), e);
  if (st == AC_OK) st = aci_run_meet(x, e);
  if (st == AC_OK) st = run_shares(&s, e);
  aci_run_drop(x);
  free(room);
  free(s.src);
  free(s.lo);
  return st;
}

ac_status aci_link_reduce(aci_run *x, ac_err *e) {
  const bool parts = x->c->kind == AC_COLL_REDUCE_SCATTER;
  if (!parts && x->g->size <= FEW_RANKS && (uint64_t)x->c->count * x->width <= ACI_EARLY)
    return reduce_small(x, e);
  return reduce_large(x, e);
}
