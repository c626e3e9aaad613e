/* Parts that travel along a chain of ranks: each passes on the parts it received, piece by piece,
 * so that all its connections are busy at once. Called by gather.c (ring) and broadcast.c
 * (chain). */
#include "comm/link/run.h"

enum { WINDOW = 4 };

/* Walks over parts in pieces. */
typedef struct cursor {
  aci_parts parts;
  int at;         /* which part */
  int64_t begin;  /* first element of it not yet handed out */
  int64_t passed; /* elements handed out, of all parts */
} cursor;

typedef struct piece {
  char *p;
  int64_t n;
} piece;

static int rank_of(const aci_run *x, const aci_parts *p, int i) {
  return (p->first - i + x->g->size) % x->g->size;
}

/* The next piece without taking it. n 0: there is none. */
static piece peek(const aci_run *x, cursor *k) {
  for (; k->at < k->parts.n; k->at++, k->begin = 0) {
    const int r = rank_of(x, &k->parts, k->at);
    const int64_t left = aci_part(x->c, r) - k->begin, most = ACI_PIECE / (int64_t)x->width;
    if (left > 0)
      return (piece){aci_at(x->c->recv, aci_part_at(x->c, r) + k->begin, x->width),
                     left < most ? left : most};
  }
  return (piece){NULL, 0};
}

static void take(cursor *k, int64_t n) {
  k->begin += n;
  k->passed += n;
}

static int still(const aci_batch *b, aci_request **ask, int n) {
  for (int i = 0; i < b->n; i++)
    if (!b->m[i].over) ask[n++] = &b->m[i];
  return n;
}

ac_status aci_link_relay(aci_run *x, int left, aci_parts in, int right, aci_parts out, int own,
                         ac_err *e) {
  AC_TRY(aci_run_room(x, 2, 2 * WINDOW, e));
  aci_batch *rb = &x->batch[0], *sb = &x->batch[1];
  for (int i = 0; i < WINDOW; i++) rb->m[i].over = sb->m[i].over = true;
  rb->n = sb->n = WINDOW;
  cursor to_get = {.parts = in}, to_send = {.parts = out};
  /* posted - came and sent - gone are the requests under way, at most WINDOW each. A piece is sent
   * once its elements are here */
  int64_t here = 0, got = 0; /* elements that may be sent: own ones, received ones */
  unsigned posted = 0, came = 0, sent = 0, gone = 0;
  int64_t began = aci_now_ns();
  for (int i = 0; i < own; i++) here += aci_part(x->c, rank_of(x, &out, i));
  for (;;) {
    const unsigned was = came + gone;
    for (; came != posted && rb->m[came % WINDOW].over; came++)
      got += (int64_t)(rb->m[came % WINDOW].bytes / x->width);
    for (; gone != sent && sb->m[gone % WINDOW].over; gone++) {
    }
    if (came + gone != was) began = aci_now_ns();
    for (piece p; posted - came < WINDOW && left >= 0 && (p = peek(x, &to_get)).n > 0; posted++) {
      AC_TRY(
          aci_run_start(x, &rb->m[posted % WINDOW], left, false, p.p, (size_t)p.n * x->width, e));
      take(&to_get, p.n);
    }
    for (piece p; sent - gone < WINDOW && right >= 0 && (p = peek(x, &to_send)).n > 0; sent++) {
      if (to_send.passed + p.n > here + got) break;
      AC_TRY(aci_run_start(x, &sb->m[sent % WINDOW], right, true, p.p, (size_t)p.n * x->width, e));
      take(&to_send, p.n);
    }
    /* transfers that finished at once are counted and passed on before any wait: the next rank may
     * wait for them */
    if ((came != posted && rb->m[came % WINDOW].over) ||
        (gone != sent && sb->m[gone % WINDOW].over))
      continue;
    const int n = still(sb, x->ask, still(rb, x->ask, 0));
    if (n == 0) return AC_OK; /* nothing under way: nothing that waits for it either */
    AC_TRY(aci_run_wait_any(x, x->ask, n, began, e));
  }
}
