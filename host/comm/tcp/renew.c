/* A mesh begins anew after an abort that all ranks have survived: nothing from before is waited for
 * or trusted. Every rank sends RESET on every link, and reads each up to the other's RESET. Data
 * before it belongs to finished calls. Nothing new is sent until the prompt, which directs all
 * ranks, has heard from all of them. Called by tcp.c and mpi/. Elastic jobs: generation.c. */
#include <stdlib.h>

#include "comm/tcp/mesh_impl.h"
#include "comm/wait.h"

enum { POLL_MS = 5 };

void aci_peer_give_up_receives(aci_peer *p) {
  for (aci_transfer *t = p->incoming.first, *next; t != NULL; t = next) {
    next = t->next;
    if (t->move != NULL) t->move->impl = NULL;
    t->move = NULL;
    t->wanted = true;
    if (t->kept != NULL) {
      p->kept -= t->total < ACI_EAGER ? (size_t)t->total : ACI_EAGER;
      free(t->kept);
      t->kept = NULL;
    }
  }
}

void aci_peer_clear(aci_peer *p) {
  aci_list_drop(&p->posted);
  aci_list_drop(&p->incoming);
  aci_descs_drop(p);
  p->n_descs = 0;
  p->kept = 0;
  p->receiving = NULL;
  p->wait = (aci_wait_body){0};
  p->state = ACI_RUNNING;
  p->reset = false;
  p->why[0] = 0;
}

/* A rank that cannot take part. -1: none. *waits: a rank that has not sent it so far. */
static int gone(const aci_mesh *m, int *waits) {
  *waits = -1;
  for (int r = 0; r < m->size; r++) {
    const aci_peer *p = &m->peers[r];
    if (r == m->rank) continue;
    if (p->fd < 0 || p->broken || p->state == ACI_DEAD || p->state == ACI_LEFT) return r;
    if (!p->reset && *waits < 0) *waits = r;
  }
  return -1;
}

ac_status aci_mesh_reset(aci_mesh *m, ac_err *e) {
  const int64_t began = aci_now_ns(), limit = atomic_load(&m->world->timeout_ns);
  char name[80];
  pthread_mutex_lock(&m->lock);
  for (int r = 0; r < m->size; r++) {
    if (r == m->rank) continue;
    aci_peer_give_up_receives(&m->peers[r]);
    aci_out_control(m, r, &(aci_message){.type = ACI_MSG_RESET}, NULL);
    aci_out_flush(m, r);
  }
  pthread_mutex_unlock(&m->lock);
  for (;;) {
    int waits;
    pthread_mutex_lock(&m->lock);
    const int lost = gone(m, &waits);
    pthread_mutex_unlock(&m->lock);
    if (lost >= 0) return AC_FAIL(e, PEER, "%s is gone", aci_peer_name(m, lost, name, sizeof name));
    if (waits < 0) break;
    if (limit > 0 && aci_now_ns() - began > limit)
      return AC_FAIL(e, TIMEOUT, "%s has not restarted within %.3g s",
                     aci_peer_name(m, waits, name, sizeof name), (double)limit * 1e-9);
    aci_mesh_poll(m, POLL_MS);
  }
  pthread_mutex_lock(&m->lock);
  for (int r = 0; r < m->size; r++)
    if (r != m->rank) aci_peer_clear(&m->peers[r]);
  m->abort_sent = m->has_abort = false;
  m->wait.n = 0;
  pthread_mutex_unlock(&m->lock);
  return AC_OK;
}
