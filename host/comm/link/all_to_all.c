/* all_to_all over messages, direct between every pair. Called by run.c. Only two ranks know the
 * size of a message between them, so uneven parts are announced first, and a difference is reported
 * before any data is taken. */
#include <stdlib.h>
#include <string.h>

#include "comm/link/run.h"
#include "comm/wait.h"

static int64_t sends_to(const aci_run *x, int r) { return aci_part(x->c, r); }
static int64_t gets_from(const aci_run *x, int r) {
  return x->c->counts != NULL ? x->c->recv_counts[r] : x->c->count;
}

static ac_status differ(aci_run *x, int from, int64_t sent, ac_err *e) {
  return aci_stop(
      x->g->world, AC_MISMATCH, -1, e,
      "ranks differ in count at call %u: rank %d sends %lld elements to rank %d, which expects "
      "%lld in %s%s%s",
      (unsigned)x->d->seq, x->g->ranks[from], (long long)sent, x->g->world->place.rank,
      (long long)gets_from(x, from), ac_coll_name(x->c->kind), x->d->site[0] != 0 ? " at " : "",
      x->d->site);
}

/* told[0..size-1]: the elements that each sends us. */
static ac_status announce(aci_run *x, int64_t *told, ac_err *e) {
  const int size = x->g->size;
  for (int i = 1; i < size; i++) {
    const int to = aci_run_peer(x, i), from = aci_run_peer(x, size - i);
    AC_TRY(aci_run_recv(x, &x->batch[1], from, &told[from], sizeof *told, e));
    AC_TRY(aci_run_send(x, &x->batch[1], to, &x->c->counts[to], sizeof *told, e));
  }
  AC_TRY(aci_run_meet(x, e));
  AC_TRY(aci_run_wait(x, &x->batch[1], e));
  for (int i = 1; i < size; i++) {
    const int from = aci_run_peer(x, size - i);
    if (told[from] != gets_from(x, from)) return differ(x, from, told[from], e);
  }
  return AC_OK;
}

static ac_status exchange(aci_run *x, ac_err *e) {
  const ac_coll *c = x->c;
  const int me = x->g->rank, size = x->g->size;
  int64_t send_at = 0, recv_at = 0; /* of the next rank after us, going around */
  for (int r = 0; r < me; r++) {
    send_at += sends_to(x, r);
    recv_at += gets_from(x, r);
  }
  char *own_to = aci_at(c->recv, recv_at, x->width), *own_from = aci_at(c->send, send_at, x->width);
  if (sends_to(x, me) > 0 && own_to != own_from)
    memmove(own_to, own_from, (size_t)sends_to(x, me) * x->width);
  int64_t to_at = send_at, from_at = recv_at;
  for (int i = 1; i < size; i++) {
    const int to = aci_run_peer(x, i), from = aci_run_peer(x, size - i);
    to_at = to == 0 ? 0 : to_at + sends_to(x, (to + size - 1) % size);
    if (from == size - 1) {
      from_at = 0;
      for (int r = 0; r < from; r++) from_at += gets_from(x, r);
    } else {
      from_at -= gets_from(x, from);
    }
    AC_TRY(aci_run_recv(x, &x->batch[0], from, aci_at(c->recv, from_at, x->width),
                        (size_t)gets_from(x, from) * x->width, e));
    AC_TRY(aci_run_send(x, &x->batch[0], to, aci_at(c->send, to_at, x->width),
                        (size_t)sends_to(x, to) * x->width, e));
  }
  return AC_OK;
}

static ac_status run(aci_run *x, ac_err *e) {
  const int size = x->g->size;
  AC_TRY(aci_run_room(x, 2, 2 * (size - 1), e));
  if (x->c->counts == NULL) {
    const bool early = (uint64_t)x->c->count * x->width <= ACI_EARLY;
    if (!early) AC_TRY(aci_run_meet(x, e));
    AC_TRY(exchange(x, e));
    if (early) AC_TRY(aci_run_meet(x, e));
    return aci_run_wait(x, &x->batch[0], e);
  }
  int64_t *told = malloc((size_t)size * sizeof *told);
  if (told == NULL)
    return AC_FAIL(e, OOM, "%s: no memory for the counts of %d ranks", ac_coll_name(x->c->kind),
                   size);
  ac_status st = announce(x, told, e);
  if (st != AC_OK) aci_run_drop(x);
  free(told);
  if (st == AC_OK) st = exchange(x, e);
  if (st == AC_OK) st = aci_run_wait(x, &x->batch[0], e);
  return st;
}

/* Arriving data may overwrite data that is still to be sent: then a copy is sent. */
ac_status aci_link_all_to_all(aci_run *x, ac_err *e) {
  const ac_coll *given = x->c;
  ac_coll c = *given;
  int64_t gives = 0, takes = 0;
  for (int r = 0; r < x->g->size; r++) {
    gives += sends_to(x, r);
    takes += gets_from(x, r);
  }
  const uintptr_t from = (uintptr_t)c.send, to = (uintptr_t)c.recv;
  const size_t bytes = (size_t)gives * x->width;
  void *copy = NULL;
  if (bytes > 0 && from < to + (size_t)takes * x->width && to < from + bytes) {
    if ((copy = malloc(bytes)) == NULL)
      return AC_FAIL(e, OOM, "%s: no memory to do it in place", ac_coll_name(c.kind));
    c.send = memcpy(copy, c.send, bytes);
    x->c = &c;
  }
  const ac_status st = run(x, e);
  aci_run_drop(x);
  x->c = given;
  free(copy);
  return st;
}
