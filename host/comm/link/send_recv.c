/* send and recv over messages. Called by tcp/ and mpi/ through work.c, again and again until it is
 * over.
 *
 * A transfer is two messages on one channel: the sender's descriptor, then the data. The receiver
 * begins both at once, so that several of one tag pair up in order, and compares before it believes
 * the data. */
#include <stdlib.h>
#include <string.h>

#include "comm/link/link.h"
#include "comm/wait.h"

typedef struct transfer {
  aci_request head, body;
  aci_desc mine, theirs;
  bool compared;
} transfer;

static ac_status differ(ac_group *g, const transfer *t, const char *what, ac_err *e) {
  char a[160], b[160];
  return aci_stop(g->world, AC_MISMATCH, -1, e, "ranks differ in %s: rank %d in %s, rank %d in %s",
                  what, t->head.peer, aci_desc_text(&t->theirs, a, sizeof a), g->world->place.rank,
                  aci_desc_text(&t->mine, b, sizeof b));
}

static ac_status compare(ac_group *g, transfer *t, ac_err *e) {
  t->theirs.site[ACI_SITE - 1] = 0;
  if (t->theirs.device != t->mine.device) return differ(g, t, "device", e);
  if (t->theirs.dtype != t->mine.dtype) return differ(g, t, "dtype", e);
  if (t->theirs.count != t->mine.count) return differ(g, t, "count", e);
  t->compared = true;
  return AC_OK;
}

static ac_status begin(const aci_link *l, ac_group *g, const ac_coll *c, const aci_desc *d,
                       transfer **out, ac_err *e) {
  transfer *t = calloc(1, sizeof *t);
  if (t == NULL) return AC_FAIL(e, OOM, "%s: no memory", ac_coll_name(c->kind));
  aci_page *page = g->world->page;
  if (page != NULL) aci_page_set_at(page, d->site, page->step);
  const bool sends = c->kind == AC_COLL_SEND;
  const uint64_t channel = aci_channel(g, (uint32_t)c->tag, true);
  t->mine = *d;
  t->compared = sends;
  t->head = (aci_request){.peer = g->ranks[c->root],
                          .sends = sends,
                          .channel = channel,
                          .ptr = sends ? &t->mine : &t->theirs,
                          .bytes = sizeof(aci_desc),
                          .want = &t->mine};
  t->body = (aci_request){.peer = t->head.peer,
                          .sends = sends,
                          .channel = channel,
                          .ptr = sends ? (void *)(uintptr_t)c->send : c->recv,
                          .bytes = (size_t)c->count * ac_dtype_bytes(c->dtype),
                          .want = &t->mine};
  t->body.over = t->body.bytes == 0;
  ac_status st = l->start(g->world, &t->head, e);
  if (st == AC_OK && !t->body.over && (st = l->start(g->world, &t->body, e)) != AC_OK)
    l->cancel(g->world, &t->head);
  if (st != AC_OK) {
    free(t);
    return st;
  }
  *out = t;
  return AC_OK;
}

static void end(const aci_link *l, ac_group *g, transfer *t) {
  if (t == NULL) return;
  if (!t->head.over) l->cancel(g->world, &t->head);
  if (!t->body.over) l->cancel(g->world, &t->body);
  free(t);
}

/* Works at both, or at the head alone while it is to be compared: a fault of the data is often
 * explained by it. */
static ac_status work(const aci_link *l, ac_group *g, transfer *t, ac_err *e) {
  for (;;) {
    aci_request *ask[2];
    int n = 0;
    ac_err own;
    const bool first = !t->compared;
    if (!t->head.over) ask[n++] = &t->head;
    if (!t->body.over && t->compared) ask[n++] = &t->body;
    const ac_status st = n > 0 ? l->progress(g->world, ask, n, 0, &own) : AC_OK;
    if (st != AC_OK) {
      if (aci_aborted(g->world, NULL) == AC_OK) aci_abort(g->world, st, -1, own.msg);
      if (e != NULL) *e = own;
      return st;
    }
    if (!first || !t->head.over) return AC_OK;
    AC_TRY(compare(g, t, e));
  }
}

ac_status aci_link_send_recv(const aci_link *l, ac_group *g, const ac_coll *c, aci_desc *d,
                             void **state, bool *done, ac_err *e) {
  transfer *t = *state;
  if (*done) {
    end(l, g, t);
    *state = NULL;
    return AC_OK;
  }
  ac_status st = t == NULL ? begin(l, g, c, d, &t, e) : AC_OK;
  if (st == AC_OK) st = work(l, g, t, e);
  *done = st != AC_OK || (t->head.over && t->body.over);
  *state = t;
  if (*done) {
    end(l, g, t);
    *state = NULL;
  }
  return st;
}
