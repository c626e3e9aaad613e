/* The mesh as the host channel of a backend that moves its data elsewhere: whether a message of that
 * backend can still come about, and leaving in two steps. Called by mpi/. */
#include <string.h>

#include "comm/tcp/mesh_impl.h"
#include "comm/wait.h"

void aci_mesh_beside(aci_mesh *m, void (*turn)(void)) { m->beside = turn; }

void aci_mesh_farewell(aci_mesh *m, const char *site) {
  pthread_mutex_lock(&m->lock);
  const size_t n = site == NULL ? 0 : strnlen(site, ACI_SITE - 1);
  for (int r = 0; r < m->size; r++) {
    if (m->peers[r].fd < 0 || m->said_farewell) continue;
    aci_out_control(m, r, &(aci_frame){.type = ACI_F_BYE, .bytes = (uint32_t)n}, site);
    aci_out_flush(m, r);
  }
  m->said_farewell = true;
  pthread_mutex_unlock(&m->lock);
}

/* A rank in a collective has ended its sends and receives; before that it answers none of ours. */
static bool is_crossed(aci_mesh *m, const aci_move *v, char *text, size_t n) {
  return (v->channel >> 32 & 1) != 0 && v->want != NULL && m->peers[v->peer].said != NULL &&
         aci_mesh_crossed(m, v->peer, v->want, text, n);
}

bool aci_mesh_in_vain(aci_mesh *m, const aci_move *v) {
  char text[512];
  pthread_mutex_lock(&m->lock);
  const bool vain = m->peers[v->peer].state == ACI_LEFT || is_crossed(m, v, text, sizeof text);
  pthread_mutex_unlock(&m->lock);
  return vain;
}

ac_status aci_mesh_give_up(aci_mesh *m, const aci_move *v, ac_err *e) {
  char text[512];
  pthread_mutex_lock(&m->lock);
  const bool crossed = is_crossed(m, v, text, sizeof text);
  pthread_mutex_unlock(&m->lock);
  return crossed ? aci_stop(m->world, AC_MISMATCH, -1, e, "%s", text) : aci_mesh_left(m, v->peer, v->want, e);
}
