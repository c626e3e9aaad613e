/* Ranks that wait for each other in different calls: found from unexpected descriptors, and over
 * several ranks from their WAIT messages. The mesh's lock is held throughout. Called by
 * exchange_descs.c and progress.c.
 *
 * A ring of waits is never a false alarm, however late messages are. A rank that announces a wait
 * for b also announces which wait of b it knew of then. On their link b's descriptors come before
 * b's announcement of a later wait, so b had not entered the call before that wait. In a wait it
 * enters no other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/tcp/mesh_impl.h"

enum { SHOWN = 3 };

/* "rank 1 waits for rank 0 in barrier at b.lua:3 (group 2)" */
static size_t waits_text(int rank, int whom, const aci_desc *d, char *buf, size_t n) {
  char what[160], group[24] = "";
  if (d->group != 0) snprintf(group, sizeof group, " (group %u)", (unsigned)d->group);
  const int k = snprintf(buf, n, "rank %d waits for rank %d in %s%s", rank, whom,
                         aci_desc_text(d, what, sizeof what), group);
  return k < 0 ? 0 : (size_t)k < n ? (size_t)k : n - 1;
}

static const char end_text[] =
    ": none can continue; make these calls in the same order on all ranks";

/* A rank that announced its next call continues only when all members of that group came. A peer's
 * descriptor that this rank has not answered means that the peer waits for this rank. One
 * collective runs at a time, so the peer does nothing else. */
bool aci_mesh_mutual_wait(aci_mesh *m, int peer, const aci_desc *mine, char *text, size_t n) {
  const aci_pending_desc *s = m->peers[peer].descs;
  while (s != NULL && s->desc.group == mine->group && mine->kind != AC_COLL_SEND &&
         mine->kind != AC_COLL_RECV)
    s = s->next;
  if (s == NULL) return false;
  size_t at = waits_text(m->rank, peer, mine, text, n);
  at += (size_t)snprintf(text + at, n - at, ", ");
  if (at < n) at += waits_text(peer, m->rank, &s->desc, text + at, n - at);
  if (at < n) snprintf(text + at, n - at, "%s", end_text);
  return true;
}

/* The wait that a rank is in, as far as this one knows. 0: none. */
static uint32_t wait_of(const aci_mesh *m, int rank) {
  const aci_wait_body *w = rank == m->rank ? &m->wait : &m->peers[rank].wait;
  return w->n > 0 ? w->number : 0;
}

static void tell(aci_mesh *m) {
  for (int r = 0; r < m->size; r++) {
    if (m->peers[r].state != ACI_RUNNING) continue;
    aci_out_control(m, r, &(aci_message){.type = ACI_MSG_WAIT, .bytes = sizeof m->wait}, &m->wait);
    aci_out_flush(m, r);
  }
}

void aci_mesh_tell_wait(aci_mesh *m, const aci_desc *mine, const int *missing, int n, bool fresh) {
  aci_wait_body w = {.n = (uint32_t)(n < ACI_WAIT_RANKS ? n : ACI_WAIT_RANKS),
                     .number = m->wait.number + fresh,
                     .want = *mine};
  bool news = fresh;
  if (w.number == 0) w.number = 1;
  for (uint32_t i = 0, was = 0; i < w.n; i++) {
    w.ranks[i] = missing[i];
    w.known_wait[i] = wait_of(m, missing[i]);
    /* they are as before, some less */
    while (was < m->wait.n && m->wait.ranks[was] != missing[i]) was++;
    news = news || was == m->wait.n || m->wait.known_wait[was] != w.known_wait[i];
  }
  if (!news) return;
  m->wait = w;
  tell(m);
}

void aci_mesh_wait_over(aci_mesh *m) {
  m->wait = (aci_wait_body){.number = m->wait.number};
  tell(m);
}

/* Depth first from rank `at`. via[r]: the rank that waits for r. True when this rank is reached
 * again. */
static bool leads_back(const aci_mesh *m, int at, int *via) {
  const aci_wait_body *w = &m->peers[at].wait;
  for (uint32_t i = 0; i < w->n; i++) {
    const int next = w->ranks[i];
    if (next < 0 || next >= m->size || via[next] >= 0) continue;
    if (w->known_wait[i] == 0 || w->known_wait[i] != wait_of(m, next)) continue;
    via[next] = at;
    if (next == m->rank || leads_back(m, next, via)) return true;
  }
  return false;
}

bool aci_mesh_wait_cycle(aci_mesh *m, const aci_desc *mine, const int *missing, int n, char *text,
                         size_t bytes) {
  int *via = malloc((size_t)m->size * sizeof *via);
  bool found = false;
  if (via == NULL) return false; /* the timeout remains */
  for (int r = 0; r < m->size; r++) via[r] = -1;
  for (int i = 0; i < n && !found; i++) {
    if (via[missing[i]] >= 0) continue;
    via[missing[i]] = m->rank;
    found = leads_back(m, missing[i], via);
  }
  if (found) {
    size_t at = 0;
    int whom = m->rank;
    for (int shown = 0; at < bytes; shown++) {
      const int rank = via[whom];
      if (shown == SHOWN) at += (size_t)snprintf(text + at, bytes - at, " and so on");
      if (shown == SHOWN) break;
      if (shown > 0) at += (size_t)snprintf(text + at, bytes - at, ", ");
      if (at < bytes)
        at += waits_text(rank, whom, rank == m->rank ? mine : &m->peers[rank].wait.want, text + at,
                         bytes - at);
      if (rank == m->rank) break;
      whom = rank;
    }
    if (at < bytes) snprintf(text + at, bytes - at, "%s", end_text);
  }
  free(via);
  return found;
}
