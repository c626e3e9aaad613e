/* The links of an elastic job when a generation begins: those to ranks that are not members are
 * closed, the others are kept and begin anew. Called by tcp.c from ac_world_recover.
 *
 * Every member sends RESET with the generation's number on every link, and reads each up to the
 * other's RESET. What came before belongs to older generations and is dropped as the RESET is read.
 * What comes after it is of this generation and stays, since a member may enter the next call while
 * another still reads. No RESET comes before this rank waits for the generation: the launchers form
 * it when all its members have reported that they left their calls. */
#include <stdlib.h>
#include <string.h>

#include "comm/tcp/mesh_impl.h"
#include "comm/wait.h"

enum { POLL_MS = 2 };

/* The members take the first places, in their order, which is that of before. */
static ac_status keep_members(aci_mesh *m, ac_err *e) {
  const ac_world *w = m->world;
  int n = 0;
  for (int r = 0; r < m->size; r++) {
    aci_peer *p = &m->peers[r];
    if (n == w->place.size || p->start != aci_start_of(w, n)) {
      aci_peer_fini(p);
      memset(p, 0, sizeof *p);
      p->fd = -1;
      continue;
    }
    if (r != n) {
      m->peers[n] = *p;
      m->infos[n] = m->infos[r];
      memset(p, 0, sizeof *p);
      p->fd = -1;
    }
    n++;
  }
  m->size = n;
  m->rank = w->place.rank;
  return n == w->place.size
             ? AC_OK
             : AC_FAIL(e, PEER, "rank %d has no link to a rank that joined", w->place.rank);
}

/* The first member whose RESET has not come. -1: all have. */
static int missing(const aci_mesh *m) {
  for (int r = 0; r < m->size; r++)
    if (r != m->rank && m->peers[r].generation < m->world->generation) return r;
  return -1;
}

static void begin_anew(aci_mesh *m, int r) {
  aci_peer *p = &m->peers[r];
  while (p->sends.first != NULL) {
    aci_transfer *t = p->sends.first;
    if (t->move != NULL) t->move->impl = NULL;
    aci_out_cancel(m, r, t);
  }
  /* a member that was faster may have sent its RESET, and calls of this generation after it */
  if (p->generation < m->world->generation) aci_peer_give_up_receives(p);
  aci_out_control(m, r, &(aci_message){.type = ACI_MSG_RESET, .total = m->world->generation}, NULL);
  aci_out_flush(m, r);
}

ac_status aci_mesh_reform(aci_mesh *m, ac_err *e) {
  const int64_t began = aci_now_ns(), limit = atomic_load(&m->world->timeout_ns);
  char name[80];
  pthread_mutex_lock(&m->lock);
  ac_status st = keep_members(m, e);
  for (int r = 0; r < m->size && st == AC_OK; r++)
    if (r != m->rank) begin_anew(m, r);
  m->wait.n = 0;
  pthread_mutex_unlock(&m->lock);
  while (st == AC_OK) {
    pthread_mutex_lock(&m->lock);
    const int waits = missing(m);
    pthread_mutex_unlock(&m->lock);
    if (waits < 0) break;
    if (limit > 0 && aci_now_ns() - began > limit)
      st = AC_FAIL(e, TIMEOUT, "%s has not entered generation %llu within %.3g s",
                   aci_peer_name(m, waits, name, sizeof name),
                   (unsigned long long)m->world->generation, (double)limit * 1e-9);
    else aci_mesh_poll(m, POLL_MS);
    if (st == AC_OK) st = aci_mesh_check_end(m, e); /* a link that breaks: a rank was lost */
  }
  return st;
}
