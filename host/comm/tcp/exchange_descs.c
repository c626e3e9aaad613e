/* Descriptors of all members of a group, before a collective begins: sent to all, compared as they
 * come. Called by link/ and mpi/. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/tcp/mesh_impl.h"
#include "comm/wait.h"

enum {
  MS = 1000000,
  POLL_MS = 5,
  OTHERS_GRACE = 30 * MS,
  TELL_AFTER = 200 * MS,
  TELL_AGAIN = 20 * MS
};

typedef struct exchange {
  aci_mesh *m;
  ac_group *g;
  const aci_desc *mine;
  aci_desc *all;
  int *missing, n;                 /* group ranks */
  int *ranks;                      /* the same as global ranks */
  int64_t began, checked, differs; /* differs: start time of the difference. 0: none */
  /* time at which this wait was announced to the others, or news were looked for. 0: not yet */
  int64_t told;
} exchange;

/* Takes the peer's descriptor for this group. False: nothing yet. */
static bool take_desc_of(exchange *s, int r) {
  aci_peer *p = &s->m->peers[s->g->ranks[r]];
  for (aci_pending_desc **at = &p->descs; *at != NULL; at = &(*at)->next) {
    aci_pending_desc *d = *at;
    if (d->desc.group != s->g->id) continue;
    s->all[r] = d->desc;
    *at = d->next;
    p->n_descs--;
    free(d);
    return true;
  }
  return false;
}

static void collect(exchange *s) {
  int n = 0;
  for (int i = 0; i < s->n; i++) {
    const int r = s->missing[i];
    if (!take_desc_of(s, r)) s->missing[n++] = r;
    else if (!aci_desc_same(&s->all[r], s->mine) && s->differs == 0) s->differs = aci_now_ns();
  }
  s->n = n;
  for (int i = 0; i < n; i++) s->ranks[i] = s->g->ranks[s->missing[i]];
}

static ac_status mismatch(exchange *s, ac_err *e) {
  const int size = s->g->size;
  const aci_desc **descs = malloc((size_t)size * sizeof *descs);
  if (descs == NULL) return AC_FAIL(e, OOM, "no memory to tell how ranks differ");
  for (int r = 0; r < size; r++) descs[r] = &s->all[r];
  for (int i = 0; i < s->n; i++) descs[s->missing[i]] = NULL;
  const ac_status st = aci_mismatch(s->g, descs, e);
  free(descs);
  return st;
}

/* ": rank 1 was last at train.lua:30" for the first few. The lock is held. */
static void last_seen(const exchange *s, char *buf, size_t n) {
  size_t at = 0;
  buf[0] = 0;
  for (int i = 0; i < s->n && i < 3 && at < n; i++) {
    const aci_peer *p = &s->m->peers[s->ranks[i]];
    const bool waits = p->wait.n > 0;
    at += (size_t)snprintf(buf + at, n - at, "%s rank %d %s%s", i > 0 ? "," : ":", s->ranks[i],
                           waits                  ? "waits at "
                           : p->last_site[0] != 0 ? "was last at "
                                                  : "has called nothing yet",
                           waits ? p->wait.want.site : p->last_site);
  }
}

static ac_status timed_out(exchange *s, int64_t now, ac_err *e) {
  char what[160], list[96] = "", seen[224];
  size_t at = 0;
  for (int i = 0; i < s->n && i < 8; i++)
    at += (size_t)snprintf(list + at, sizeof list - at, "%s%d", i > 0 ? ", " : "", s->ranks[i]);
  if (s->n > 8) snprintf(list + at, sizeof list - at, " and %d more", s->n - 8);
  pthread_mutex_lock(&s->m->lock);
  last_seen(s, seen, sizeof seen);
  pthread_mutex_unlock(&s->m->lock);
  return aci_stop(
      s->m->world, AC_TIMEOUT, s->n == 1 ? s->ranks[0] : -1, e,
      "rank %d waited %.3g s for rank%s %s in %s%s; raise --timeout if they are only slow",
      s->m->rank, (double)(now - s->began) / 1e9, s->n > 1 ? "s" : "", list,
      aci_desc_text(s->mine, what, sizeof what), seen);
}

/* The others' ends, circles, the time. Called when something is missing. */
static ac_status check_wait(exchange *s, ac_err *e) {
  aci_mesh *m = s->m;
  const int64_t now = aci_now_ns();
  int left = -1;
  bool deadlocked = false;
  char text[512];
  pthread_mutex_lock(&m->lock);
  for (int i = 0; i < s->n && left < 0 && !deadlocked; i++) {
    if (m->peers[s->ranks[i]].state == ACI_LEFT) left = s->ranks[i];
    else deadlocked = aci_mesh_mutual_wait(m, s->ranks[i], s->mine, text, sizeof text);
  }
  const bool again = s->told != 0;
  if (left < 0 && !deadlocked &&
      now - (again ? s->told : s->began) > (again ? TELL_AGAIN : TELL_AFTER)) {
    aci_mesh_tell_wait(m, s->mine, s->ranks, s->n, !again);
    s->told = now;
  }
  if (left < 0 && !deadlocked && again)
    deadlocked = aci_mesh_wait_cycle(m, s->mine, s->ranks, s->n, text, sizeof text);
  pthread_mutex_unlock(&m->lock);
  if (s->differs != 0)
    return left >= 0 || deadlocked || now - s->differs > OTHERS_GRACE ? mismatch(s, e) : AC_OK;
  if (left >= 0) return aci_mesh_left(m, left, s->mine, e);
  if (deadlocked) return aci_stop(m->world, AC_MISMATCH, -1, e, "%s", text);
  if (now - s->checked < POLL_MS * (int64_t)MS) return AC_OK;
  s->checked = now;
  const int64_t limit = atomic_load_explicit(&m->world->timeout_ns, memory_order_relaxed);
  if (now - s->began > limit) return timed_out(s, now, e);
  return aci_wait_check(s->g, s->mine, s->began, s->n == 1 ? s->missing[0] : -1, e);
}

static ac_status run(exchange *s, ac_err *e) {
  for (;;) {
    pthread_mutex_lock(&s->m->lock);
    collect(s);
    pthread_mutex_unlock(&s->m->lock);
    if (s->n == 0) return s->differs != 0 ? mismatch(s, e) : AC_OK;
    AC_TRY(check_wait(s, e));
    aci_mesh_poll(s->m, POLL_MS);
    AC_TRY(aci_mesh_check_end(s->m, e));
  }
}

ac_status aci_mesh_exchange_descs(aci_mesh *m, ac_group *g, const aci_desc *d, aci_desc *all,
                                  ac_err *e) {
  enum { FEW = 32 };
  int few[2 * FEW], *ranks = few;
  AC_TRY(aci_aborted(m->world, e));
  if (g->size > FEW && (ranks = malloc(2 * (size_t)g->size * sizeof *ranks)) == NULL)
    return AC_FAIL(e, OOM, "no memory for the descriptors of %d ranks", g->size);
  /* one allocation for both lists of missing ranks, by group rank and by global rank */
  exchange s = {.m = m,
                .g = g,
                .mine = d,
                .all = all,
                .missing = ranks,
                .ranks = ranks + g->size,
                .began = aci_now_ns()};
  s.checked = s.began;
  all[g->rank] = *d;
  pthread_mutex_lock(&m->lock);
  /* from the next rank on, so that not all send to rank 0 first */
  for (int i = 1; i < g->size; i++) {
    const int r = (g->rank + i) % g->size;
    s.missing[s.n++] = r;
    if (m->peers[g->ranks[r]].state == ACI_RUNNING)
      aci_out_control(m, g->ranks[r],
                      &(aci_message){.type = ACI_MSG_DESC, .channel = g->id, .bytes = sizeof *d},
                      d);
    aci_out_flush(m, g->ranks[r]);
  }
  pthread_mutex_unlock(&m->lock);
  const ac_status st = run(&s, e);
  /* this wait was announced, so the others need the announcement that it is over */
  if (s.told != 0) {
    pthread_mutex_lock(&m->lock);
    aci_mesh_wait_over(m);
    pthread_mutex_unlock(&m->lock);
  }
  if (ranks != few) free(ranks);
  return st;
}
