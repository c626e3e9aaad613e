/* Ranks that wait for each other in a ring. Each page shows the ranks that its rank waits for, and
 * every wait needs all of them, so a ring can never be left. Called by watch.c, some 200 ms into a
 * wait.
 *
 * There are no false alarms, because a rank stamps its page (`checked_at`) with a time at which the
 * awaited event had not come yet. A ring found at time T counts if later all its ranks show the
 * same wait (`waiting`) with stamps after T. Then all of them stood in these waits at T at once,
 * and none could do the work that another one waits for. If data may be on its way (NETWORK), the
 * same must hold for much longer. */
#include <stdio.h>
#include <string.h>

#include "comm/wait.h"

enum { MS = 1000000, LOOK_AFTER = 200 * MS, APART = 50 * MS, NETWORK_APART = 400 * MS };

typedef struct node {
  uint32_t waiting; /* 0: not, or not to be counted */
  aci_wait_kind kind;
  int64_t checked_at;
  uint32_t missing[ACI_MAX_LOCAL / 32];
  uint64_t group;
  uint32_t seq;
} node;

static node read_node(const ac_world *w, int i, aci_desc *want) {
  aci_page p;
  aci_page_read(aci_page_of(w->segment.head, i), &p);
  node x = {.kind = (aci_wait_kind)p.kind,
            .checked_at = atomic_load(&p.checked_at),
            .group = p.want.group,
            .seq = p.want.seq};
  if (x.kind != ACI_WAIT_SOFT && atomic_load(&p.state) == ACI_RUNNING)
    x.waiting = atomic_load(&p.waiting);
  memcpy(x.missing, p.missing, sizeof x.missing);
  if (want != NULL) *want = p.want;
  return x;
}

/* Does a wait for b that b cannot end while it waits itself? Inside one collective parts may be
 * under way. */
static bool holds(const node *a, const node *b, int b_rank) {
  const bool same_call = a->group == b->group && a->seq == b->seq && a->seq != 0;
  return a->waiting != 0 && b->waiting != 0 && aci_bit(a->missing, b_rank) && !same_call;
}

/* The shortest ring through this rank, breadth first. */
static void find_ring(const ac_world *w, aci_deadlock_probe *l) {
  const int me = w->place.local_rank, n = w->place.local_size;
  node all[ACI_MAX_LOCAL];
  int from[ACI_MAX_LOCAL], queue[ACI_MAX_LOCAL], head = 0, tail = 0, last = -1;
  for (int i = 0; i < n; i++) {
    all[i] = read_node(w, i, NULL);
    from[i] = -1;
  }
  /* edges go from a rank to those it waits for, from[] leads back along the search */
  queue[tail++] = me;
  while (head < tail && last < 0) {
    const int at = queue[head++];
    for (int i = 0; i < n && last < 0; i++) {
      if (!holds(&all[at], &all[i], i)) continue;
      if (i == me) last = at;
      else if (from[i] < 0) from[queue[tail++] = i] = at;
    }
  }
  l->n = 0;
  l->weakest = ACI_WAIT_MEMORY;
  for (int i = last; i >= 0; i = i == me ? -1 : from[i]) {
    l->ring[l->n] = (uint8_t)i;
    l->turn[l->n++] = all[i].waiting;
    if (all[i].kind < l->weakest) l->weakest = all[i].kind;
  }
  for (int a = 0, b = l->n - 1; a < b; a++, b--) { /* it was walked backwards */
    const uint8_t rank = l->ring[a];
    const uint32_t turn = l->turn[a];
    l->ring[a] = l->ring[b];
    l->turn[a] = l->turn[b];
    l->ring[b] = rank;
    l->turn[b] = turn;
  }
  l->checked_at = aci_now_ns(); /* after all pages were read */
}

/* Does the ring of the last look still stand, all of it after that look? */
static bool stands(const ac_world *w, const aci_deadlock_probe *l) {
  const int64_t after = l->checked_at + (l->weakest == ACI_WAIT_NETWORK ? APART : 0);
  for (int k = 0; k < l->n; k++) {
    const node x = read_node(w, l->ring[k], NULL);
    if (x.waiting != l->turn[k] || x.checked_at <= after ||
        !aci_bit(x.missing, l->ring[k + 1 == l->n ? 0 : k + 1]))
      return false;
  }
  return true;
}

static ac_status tell(ac_world *w, const aci_deadlock_probe *l, ac_err *e) {
  char text[440];
  size_t at = 0;
  const int shown = l->n < 3 ? l->n : 3;
  for (int k = 0; k < shown && at < sizeof text; k++) {
    aci_desc want;
    char what[160];
    read_node(w, l->ring[k], &want);
    want.site[sizeof want.site - 1] = 0;
    at += (size_t)snprintf(text + at, sizeof text - at, "%srank %d waits for rank %d in %s",
                           k > 0 ? ", " : "", aci_global_of(w, l->ring[k]),
                           aci_global_of(w, l->ring[k + 1 == l->n ? 0 : k + 1]),
                           aci_desc_text(&want, what, sizeof what));
    if (at < sizeof text && want.group != 0)
      at += (size_t)snprintf(text + at, sizeof text - at, " (group %u)", (unsigned)want.group);
  }
  if (l->n > shown && at < sizeof text)
    snprintf(text + at, sizeof text - at, " and so on over %d ranks", l->n);
  return aci_stop(w, AC_MISMATCH, -1, e,
                  "%s: none can continue; make these calls in the same order on all ranks", text);
}

ac_status aci_deadlock(aci_waiting *k, ac_err *e) {
  aci_deadlock_probe *l = k->probe;
  if (l == NULL || k->kind == ACI_WAIT_SOFT || k->now - k->began < LOOK_AFTER) return AC_OK;
  const bool found = l->n > 0;
  if (found && k->now - l->checked_at < (l->weakest == ACI_WAIT_NETWORK ? NETWORK_APART : APART))
    return AC_OK;
  if (!found && k->now - l->checked_at < APART) return AC_OK;
  if (found && stands(k->g->world, l)) return tell(k->g->world, l, e);
  find_ring(k->g->world, l);
  return AC_OK;
}
