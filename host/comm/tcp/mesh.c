/* The life of a mesh: made, listening, linked (connect.c), notified of the end of the job, closed.
 * Called by tcp.c and mpi/. */
#include "comm/tcp/mesh.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "comm/tcp/mesh_impl.h"

enum { LEAVE_MS = 2000, ABORT_MS = 500, OTHER_FILES = 64 };

const char *aci_peer_name(const aci_mesh *m, int rank, char *buf, size_t n) {
  const aci_peer_info *c = rank == m->rank ? &m->own : &m->infos[rank];
  snprintf(buf, n, "rank %d (%s:%d)", rank, c->host[0] != 0 ? c->host : "pid", (int)c->pid);
  return buf;
}

void aci_mesh_hosts(const aci_mesh *m, char *buf, size_t n) {
  size_t at = 0;
  buf[0] = 0;
  for (int r = 0; r < m->size; r++) {
    const aci_peer_info *c = &m->infos[r];
    bool again = r == m->rank || c->machine == m->own.machine || c->host[0] == 0;
    for (int k = 0; k < r && !again; k++) again = m->infos[k].machine == c->machine;
    const size_t k = strlen(c->host);
    if (again || at + k + 2 > n) continue;
    at += (size_t)snprintf(buf + at, n - at, "%s%s", at > 0 ? "," : "", c->host);
  }
}

static ac_status fill_info(const ac_world *w, aci_peer_info *c, ac_err *e) {
  memcpy(c->magic, "accelcd1", sizeof c->magic);
  c->order = 0x01020304;
  c->protocol = ACI_PROTOCOL;
  c->rank = w->place.rank;
  c->size = w->place.size;
  c->local_rank = w->place.local_rank;
  c->machine = w->place.machine;
  c->pid = (int32_t)getpid();
  c->script_hash = w->script_hash;
  memcpy(c->version, w->version, sizeof c->version);
  if (gethostname(c->host, sizeof c->host - 1) != 0) c->host[0] = 0;
  memcpy(c->run_id, w->place.run_id, sizeof c->run_id);
  memcpy(c->script, w->script, sizeof c->script);
  return aci_random_bytes(c->token, sizeof c->token, e);
}

void aci_mesh_set_key(aci_mesh *m, const uint8_t key[32]) {
  m->key.insecure = key == NULL;
  if (key != NULL) memcpy(m->key.key, key, sizeof m->key.key);
}

static void mesh_free(aci_mesh *m) {
  if (m->peers != NULL)
    for (int r = 0; r < m->size; r++) aci_peer_fini(&m->peers[r]);
  if (m->listener >= 0) close(m->listener);
  if (m->wake >= 0) close(m->wake);
  pthread_mutex_destroy(&m->lock);
  free(m->peers);
  free(m->infos);
  free(m->polls);
  aci_forget(&m->key, sizeof m->key);
  free(m);
}

ac_status aci_mesh_new(ac_world *w, aci_mesh **out, ac_err *e) {
  const size_t size = (size_t)w->place.size;
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY &&
      files.rlim_cur < size + OTHER_FILES)
    return AC_FAIL(
        e, INVALID,
        "rank %d may open %llu files, links to %zu ranks need more; raise the limit (ulimit -n %zu)",
        w->place.rank, (unsigned long long)files.rlim_cur, size, 2 * (size + OTHER_FILES));
  /* all that mesh_free looks at is set before the first thing that may fail */
  aci_mesh *m = calloc(1, sizeof *m);
  if (m == NULL) return AC_FAIL(e, OOM, "no memory for links to %d ranks", w->place.size);
  pthread_mutex_init(&m->lock, NULL);
  m->world = w;
  m->rank = w->place.rank;
  m->size = w->place.size;
  m->listener = -1;
  m->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  m->peers = calloc(size, sizeof *m->peers);
  m->infos = calloc(size, sizeof *m->infos);
  m->polls = calloc(size + 1, sizeof *m->polls);
  for (int r = 0; r < m->size && m->peers != NULL; r++) {
    m->peers[r].fd = -1;
    m->peers[r].state = ACI_ABSENT;
    m->peers[r].start = r;
  }
  ac_status st = fill_info(w, &m->own, e);
  if (st == AC_OK)
    st = aci_run_id_of(w->place.run_id, w->place.address, w->place.port, m->run_id, e);
  m->generation = (uint32_t)w->place.restart;
  if (m->peers != NULL && m->infos != NULL && m->polls != NULL && m->wake >= 0 && st == AC_OK) {
    *out = m;
    return AC_OK;
  }
  if (m->wake < 0 && m->polls != NULL) st = AC_FAIL(e, IO, "no eventfd: %s", strerror(errno));
  else if (m->peers == NULL || m->infos == NULL || m->polls == NULL)
    st = AC_FAIL(e, OOM, "no memory for links to %d ranks", w->place.size);
  mesh_free(m);
  return st;
}

ac_status aci_mesh_listen(aci_mesh *m, const char *address, ac_err *e) {
  char why[128];
  if (m->rank == m->size - 1) return AC_OK; /* ranks connect to those below them */
  const aci_place *p = &m->world->place;
  if (address == NULL && p->local_size == p->size) address = "127.0.0.1";
  m->listener = aci_socket_listen(address, 0, &m->own.port, why, sizeof why);
  if (m->listener < 0)
    return AC_FAIL(e, IO, "rank %d cannot listen at %s: %s", m->rank,
                   address != NULL ? address : "any address", why);
  if (address != NULL) snprintf(m->own.address[0], ACI_ADDRESS, "%s", address);
  else if (aci_addresses_here(m->own.address, ACI_MESH_ADDRESSES) == 0)
    snprintf(m->own.address[0], ACI_ADDRESS, "127.0.0.1");
  return AC_OK;
}

ac_status aci_mesh_open(ac_world *w, const char *address, aci_mesh **out, aci_peer_info *info,
                        ac_err *e) {
  aci_mesh *m;
  AC_TRY(aci_mesh_new(w, &m, e));
  ac_status st = aci_mesh_listen(m, address, e);
  if (st != AC_OK) {
    mesh_free(m);
    return st;
  }
  *info = m->own;
  *out = m;
  return AC_OK;
}

void aci_mesh_adopt(aci_mesh *m, int rank, int fd) {
  pthread_mutex_lock(&m->lock);
  aci_peer *p = &m->peers[rank];
  if (p->fd >= 0) close(p->fd);
  aci_socket_tune(fd);
  if (ac_world_elastic(m->world)) aci_socket_keep(fd); /* the agents watch its machine */
  p->fd = fd;
  p->state = ACI_RUNNING;
  pthread_mutex_unlock(&m->lock);
}

void aci_mesh_abort(aci_mesh *m, ac_status code, int rank, const char *text) {
  pthread_mutex_lock(&m->lock);
  if (!m->abort_sent) {
    m->abort_sent = true;
    aci_abort_body v = {.code = (int32_t)code, .rank = rank};
    snprintf(v.text, sizeof v.text, "%s", text);
    for (int r = 0; r < m->size; r++) {
      if (m->peers[r].state != ACI_RUNNING) continue;
      aci_out_control(m, r, &(aci_message){.type = ACI_MSG_ABORT, .bytes = sizeof v}, &v);
      aci_out_flush(m, r);
    }
  }
  pthread_mutex_unlock(&m->lock);
  const uint64_t one = 1;
  if (write(m->wake, &one, sizeof one) < 0) return; /* it is awake already */
}

/* Whether everything is on its way. Bytes that the kernel still holds could be lost if the peer
 * sends to a closed socket. */
static bool is_delivered(const aci_mesh *m, int rank) {
  const aci_peer *p = &m->peers[rank];
  int left = 0;
  if (p->fd < 0 || p->broken || p->state == ACI_DEAD) return true;
  return !aci_out_waits(p) && (ioctl(p->fd, SIOCOUTQNSD, &left) != 0 || left == 0);
}

void aci_mesh_close(aci_mesh *m, const char *site) {
  if (m == NULL) return;
  const bool aborted = ac_world_aborted(m->world, NULL);
  if (!aborted) aci_mesh_send_leave(m, site);
  const int64_t limit = aci_now_ns() + (aborted ? ABORT_MS : LEAVE_MS) * INT64_C(1000000);
  for (bool all = false; !all;) {
    aci_mesh_poll(m, 0); /* also reads: a socket with unread bytes would end in a reset */
    all = true;
    pthread_mutex_lock(&m->lock);
    for (int r = 0; r < m->size && all; r++) all = is_delivered(m, r);
    pthread_mutex_unlock(&m->lock);
    if (aci_now_ns() > limit) break;
    if (!all) aci_mesh_poll(m, 1);
  }
  mesh_free(m);
}
