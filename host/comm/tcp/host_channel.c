/* The mesh as the host channel of a backend that moves its data elsewhere: whether a message of
 * that backend can still come about, and leaving in two steps. Called by mpi/. */
#include <string.h>

#include "comm/tcp/mesh_impl.h"
#include "comm/wait.h"

void aci_mesh_set_progress(aci_mesh *m, void (*progress)(void)) { m->other_progress = progress; }

void aci_mesh_send_leave(aci_mesh *m, const char *site) {
  pthread_mutex_lock(&m->lock);
  const size_t n = site == NULL ? 0 : strnlen(site, ACI_SITE - 1);
  for (int r = 0; r < m->size; r++) {
    if (m->peers[r].fd < 0 || m->leave_sent) continue;
    aci_out_control(m, r, &(aci_message){.type = ACI_MSG_LEAVE, .bytes = (uint32_t)n}, site);
    aci_out_flush(m, r);
  }
  m->leave_sent = true;
  pthread_mutex_unlock(&m->lock);
}

/* A rank in a collective has ended its sends and receives. Before that it answers none of ours. */
static bool is_deadlocked(aci_mesh *m, const aci_request *v, char *text, size_t n) {
  return (v->channel >> 32 & 1) != 0 && v->want != NULL && m->peers[v->peer].descs != NULL &&
         aci_mesh_mutual_wait(m, v->peer, v->want, text, n);
}

bool aci_mesh_cannot_complete(aci_mesh *m, const aci_request *v) {
  char text[512];
  pthread_mutex_lock(&m->lock);
  const bool never = m->peers[v->peer].state == ACI_LEFT || is_deadlocked(m, v, text, sizeof text);
  pthread_mutex_unlock(&m->lock);
  return never;
}

ac_status aci_mesh_fail_transfer(aci_mesh *m, const aci_request *v, ac_err *e) {
  char text[512];
  pthread_mutex_lock(&m->lock);
  const bool deadlocked = is_deadlocked(m, v, text, sizeof text);
  pthread_mutex_unlock(&m->lock);
  return deadlocked ? aci_stop(m->world, AC_MISMATCH, -1, e, "%s", text)
                    : aci_mesh_left(m, v->peer, v->want, e);
}
