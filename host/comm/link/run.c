/* The run of backends over a link: which algorithm, its transfers and waits. Called by tcp/ and
 * mpi/. */
#include "comm/link/run.h"

#include <stdlib.h>
#include <string.h>

enum { NAP_MS = 5 };

ac_status aci_run_room(aci_run *x, int n_batches, int most, ac_err *e) {
  AC_CHECK(n_batches <= ACI_BATCHES && x->moves == NULL, e);
  x->moves = malloc((size_t)n_batches * (size_t)most * sizeof *x->moves);
  x->ask = malloc((size_t)most * sizeof(aci_request *));
  if (x->moves == NULL || x->ask == NULL)
    return AC_FAIL(e, OOM, "%s: no memory for its transfers", ac_coll_name(x->c->kind));
  x->most = most;
  for (int i = 0; i < n_batches; i++) x->batch[i].m = x->moves + (size_t)i * (size_t)most;
  return AC_OK;
}

ac_status aci_run_meet(aci_run *x, ac_err *e) {
  enum { FEW = 16 };
  aci_desc few[FEW], *all = few;
  if (x->g->size > FEW && (all = malloc((size_t)x->g->size * sizeof *all)) == NULL)
    return AC_FAIL(e, OOM, "%s: no memory for %d descriptors", ac_coll_name(x->c->kind),
                   x->g->size);
  const ac_status st = x->l->exchange_descs(x->g, x->d, all, e);
  if (all != few) free(all);
  return st;
}

ac_status aci_run_start(aci_run *x, aci_request *m, int peer, bool sends, void *p, size_t bytes,
                        ac_err *e) {
  *m = (aci_request){.peer = x->g->ranks[peer],
                     .sends = sends,
                     .channel = aci_channel(x->g, x->d->seq, false),
                     .ptr = p,
                     .bytes = bytes,
                     .want = x->d};
  return x->l->start(x->g->world, m, e);
}

static ac_status start(aci_run *x, aci_batch *b, int peer, bool sends, void *p, size_t bytes,
                       ac_err *e) {
  if (bytes == 0) return AC_OK;
  AC_CHECK(b->n < x->most, e);
  AC_TRY(aci_run_start(x, &b->m[b->n], peer, sends, p, bytes, e));
  b->n++;
  return AC_OK;
}

ac_status aci_run_send(aci_run *x, aci_batch *b, int peer, const void *p, size_t bytes, ac_err *e) {
  return start(x, b, peer, true, (void *)(uintptr_t)p, bytes, e);
}

ac_status aci_run_recv(aci_run *x, aci_batch *b, int peer, void *p, size_t bytes, ac_err *e) {
  return start(x, b, peer, false, p, bytes, e);
}

/* The group rank that the transfers wait for. -1: several. */
static int waited_for(const aci_run *x, aci_request *const *m, int n) {
  for (int i = 1; i < n; i++)
    if (m[i]->peer != m[0]->peer) return -1;
  for (int r = 0; r < x->g->size; r++)
    if (x->g->ranks[r] == m[0]->peer) return r;
  return -1;
}

ac_status aci_run_wait_any(aci_run *x, aci_request *const *m, int n, int64_t began, ac_err *e) {
  const int64_t nap = NAP_MS * INT64_C(1000000);
  ac_world *w = x->g->world;
  for (int64_t checked = began;;) {
    ac_err own;
    const ac_status st = x->l->progress(w, m, n, NAP_MS, &own);
    if (st != AC_OK) { /* the others wait for this rank, whatever the reason */
      if (aci_aborted(w, NULL) == AC_OK) aci_abort(w, st, -1, own.msg);
      if (e != NULL) *e = own;
      return st;
    }
    for (int i = 0; i < n; i++)
      if (m[i]->over) return AC_OK;
    const int64_t now = aci_now_ns();
    if (now - checked < nap) continue;
    checked = now;
    AC_TRY(aci_wait_check(x->g, x->d, began, waited_for(x, m, n), e));
  }
}

ac_status aci_run_wait(aci_run *x, aci_batch *b, ac_err *e) {
  int64_t began = aci_now_ns(), moved = 0;
  for (;;) {
    int n = 0;
    int64_t done = 0;
    for (int i = 0; i < b->n; i++) {
      done += (int64_t)b->m[i].done;
      if (!b->m[i].over) x->ask[n++] = &b->m[i];
    }
    if (n == 0) break;
    if (done != moved) { /* bytes arrive: it is a wait for the rest only */
      began = aci_now_ns();
      moved = done;
    }
    AC_TRY(aci_run_wait_any(x, x->ask, n, began, e));
  }
  b->n = 0;
  return AC_OK;
}

void aci_run_drop(aci_run *x) {
  for (int i = 0; i < ACI_BATCHES; i++) {
    for (int k = 0; k < x->batch[i].n; k++)
      if (!x->batch[i].m[k].over) x->l->cancel(x->g->world, &x->batch[i].m[k]);
    x->batch[i].n = 0;
  }
}

/* A group of one: its own data, as it is. */
static void copy_own(const aci_run *x) {
  const ac_coll *c = x->c;
  if (c->kind == AC_COLL_BARRIER || c->kind == AC_COLL_BROADCAST || c->send == c->recv) return;
  const size_t bytes = (size_t)aci_part(c, 0) * x->width;
  if (bytes > 0) memmove(c->recv, c->send, bytes);
}

ac_status aci_link_run(const aci_link *l, ac_group *g, const ac_coll *c, aci_desc *d, ac_err *e) {
  aci_run x = {.l = l,
               .g = g,
               .c = c,
               .d = d,
               .width = c->kind == AC_COLL_BARRIER ? 0 : ac_dtype_bytes(c->dtype)};
  if (g->size == 1) {
    copy_own(&x);
    return AC_OK;
  }
  aci_page *page = g->world->page; /* shows the launcher where a rank died */
  if (page != NULL) aci_page_set_at(page, d->site, page->step);
  ac_status st;
  switch (c->kind) {
    case AC_COLL_BARRIER: st = aci_run_meet(&x, e); break;
    case AC_COLL_ALL_REDUCE:
    case AC_COLL_REDUCE:
    case AC_COLL_REDUCE_SCATTER: st = aci_link_reduce(&x, e); break;
    case AC_COLL_BROADCAST: st = aci_link_broadcast(&x, e); break;
    case AC_COLL_ALL_GATHER: st = aci_link_all_gather(&x, e); break;
    case AC_COLL_GATHER:
    case AC_COLL_SCATTER: st = aci_link_gather_scatter(&x, e); break;
    case AC_COLL_ALL_TO_ALL: st = aci_link_all_to_all(&x, e); break;
    default: st = AC_FAIL(e, UNSUPPORTED, "%s over messages", ac_coll_name(c->kind)); break;
  }
  aci_run_drop(&x); /* after an error the caller may free its buffers */
  free(x.moves);
  free(x.ask);
  aci_wait_over(g->world);
  return st;
}
