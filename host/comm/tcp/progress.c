/* Work at the links: one turn of sending and receiving, transfers, checks for the end of the job.
 * Called by link/ through tcp.c, by the mesh's own waits, and by mpi/ through aci_mesh_check. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/tcp/mesh_impl.h"
#include "comm/wait.h"

enum { MS = 1000000, SPIN_NS = 40000, LOOK_EVERY = 500 * MS, CAUSE_GRACE = 50 * MS };
/* Of an elastic job: the launchers report a loss long before. A link that breaks between two that
 * live is the end of the job. */
static const int64_t LOSS_GRACE = 10000 * (int64_t)MS;

/* ---- turns ---- */
/* Connections whose other end is gone without a word: cable, power, kernel. */
static void check_connections(aci_mesh *m) {
  const int64_t now = aci_now_ns();
  if (now - m->checked_at < LOOK_EVERY || ac_world_elastic(m->world)) return;
  const bool fresh = now - m->checked_at > 3 * (int64_t)LOOK_EVERY;
  m->checked_at = now;
  for (int r = 0; r < m->size; r++) {
    aci_peer *p = &m->peers[r];
    if (p->fd < 0 || p->state != ACI_RUNNING) continue;
    p->unresponsive = aci_socket_is_unresponsive(p->fd) ? (fresh ? 1 : p->unresponsive + 1) : 0;
    if (p->unresponsive >= 2) aci_peer_dies(m, r, "its machine does not answer any more");
  }
}

static int prepare(aci_mesh *m) {
  int n = 0;
  m->polls[n++] = (struct pollfd){.fd = m->wake, .events = POLLIN};
  for (int r = 0; r < m->size; r++) {
    aci_peer *p = &m->peers[r];
    if (p->fd < 0) continue;
    if (!p->full && aci_out_waits(p)) aci_out_flush(m, r);
    const int events =
        (aci_in_may_read(p) ? POLLIN : 0) | (p->full && aci_out_waits(p) ? POLLOUT : 0);
    m->polls[n++] = (struct pollfd){.fd = events != 0 ? p->fd : -1, .events = (short)events};
  }
  return n;
}

static void serve(aci_mesh *m, int n) {
  int at = 1;
  for (int r = 0; r < m->size && at < n; r++) {
    aci_peer *p = &m->peers[r];
    if (p->fd < 0) continue;
    const short got = m->polls[at++].revents;
    if (got & POLLOUT) aci_out_flush(m, r);
    if (got & (POLLIN | POLLERR | POLLHUP)) aci_in_read(m, r);
    if (p->fd >= 0 && !p->full && aci_out_waits(p)) aci_out_flush(m, r);
  }
}

void aci_mesh_poll(aci_mesh *m, int wait_ms) {
  if (m->other_progress != NULL && wait_ms > 0) m->other_progress();
  pthread_mutex_lock(&m->lock);
  const int n = prepare(m);
  pthread_mutex_unlock(&m->lock);
  int ready = poll(m->polls, (nfds_t)n, 0);
  if (ready == 0 && wait_ms > 0) {
    const int64_t until = m->world->spins > 0 ? aci_now_ns() + SPIN_NS : 0;
    while (ready == 0 && aci_now_ns() < until) ready = poll(m->polls, (nfds_t)n, 0);
    if (ready == 0) ready = poll(m->polls, (nfds_t)n, wait_ms);
  }
  pthread_mutex_lock(&m->lock);
  if (ready > 0) serve(m, n);
  check_connections(m);
  pthread_mutex_unlock(&m->lock);
  uint64_t count;
  if (ready > 0 && m->polls[0].revents != 0 && read(m->wake, &count, sizeof count) < 0)
    return; /* another turn took it */
}

/* ---- the end of the job ---- */
static ac_status pass_on(aci_mesh *m, ac_err *e) {
  char text[sizeof m->abort_reason.text + 16];
  pthread_mutex_lock(&m->lock);
  m->abort_sent = true; /* its originator tells everyone */
  const aci_abort_body v = m->abort_reason;
  pthread_mutex_unlock(&m->lock);
  snprintf(text, sizeof text, "%s%s",
           strncmp(v.text, "stopped: ", 9) == 0 ? "" : "stopped: ", v.text);
  const bool known = v.code > 0 && v.code <= AC_TIMEOUT;
  aci_abort(m->world, known ? (ac_status)v.code : AC_PEER, v.rank, text);
  return aci_aborted(m->world, e);
}

ac_status aci_mesh_check_end(aci_mesh *m, ac_err *e) {
  AC_TRY(aci_aborted(m->world, e));
  const int64_t now = aci_now_ns();
  const int64_t grace = ac_world_elastic(m->world)              ? LOSS_GRACE
                        : m->size > 2 || m->world->page != NULL ? CAUSE_GRACE
                                                                : 0;
  int dead = -1;
  char why[sizeof m->peers->why], site[ACI_SITE], name[80];
  pthread_mutex_lock(&m->lock);
  const bool has_abort = m->has_abort;
  for (int r = 0; r < m->size && dead < 0; r++) {
    const aci_peer *p = &m->peers[r];
    /* who knows the cause may be about to say it */
    if (p->state != ACI_DEAD || now - p->died < grace) continue;
    dead = r;
    memcpy(why, p->why, sizeof why);
    memcpy(site, p->last_site, sizeof site);
  }
  pthread_mutex_unlock(&m->lock);
  if (has_abort) return pass_on(m, e);
  if (dead < 0) return AC_OK;
  return aci_stop(m->world, AC_PEER, dead, e, "%s died: %s%s%s",
                  aci_peer_name(m, dead, name, sizeof name), why,
                  site[0] != 0 ? "; it was last seen at " : "", site);
}

ac_status aci_mesh_left(aci_mesh *m, int peer, const aci_desc *want, ac_err *e) {
  char what[160] = "", site[ACI_SITE];
  pthread_mutex_lock(&m->lock);
  snprintf(site, sizeof site, "%.60s", m->peers[peer].why);
  pthread_mutex_unlock(&m->lock);
  if (want != NULL) aci_desc_text(want, what, sizeof what);
  return aci_stop(
      m->world, AC_PEER, peer, e,
      "rank %d left at %s while rank %d waits for it%s%s; all ranks must make the same calls before they end",
      peer, site[0] != 0 ? site : "a line not known", m->rank, want != NULL ? " in " : "", what);
}

ac_status aci_mesh_check(aci_mesh *m, int need, int wait_ms, ac_err *e) {
  aci_mesh_poll(m, wait_ms);
  AC_TRY(aci_mesh_check_end(m, e));
  if (need < 0 || need == m->rank) return AC_OK;
  pthread_mutex_lock(&m->lock);
  const bool left = m->peers[need].state == ACI_LEFT;
  pthread_mutex_unlock(&m->lock);
  return left ? aci_mesh_left(m, need, NULL, e) : AC_OK;
}

/* ---- transfers ---- */
ac_status aci_mesh_start(aci_mesh *m, aci_request *v, ac_err *e) {
  AC_CHECK(v->peer >= 0 && v->peer < m->size && v->peer != m->rank && v->impl == NULL, e);
  aci_transfer *t = calloc(1, sizeof *t);
  if (t == NULL)
    return AC_FAIL(e, OOM, "no memory for a message %s rank %d", v->sends ? "to" : "from", v->peer);
  t->move = v;
  t->channel = v->channel;
  v->impl = t;
  pthread_mutex_lock(&m->lock);
  aci_peer *p = &m->peers[v->peer];
  if (v->sends) {
    t->total = v->bytes;
    t->number = p->next_transfer_number++;
    aci_list_add(&p->sends, t);
  } else {
    aci_in_match(m, v->peer, t);
  }
  pthread_mutex_unlock(&m->lock);
  return AC_OK;
}

void aci_mesh_cancel(aci_mesh *m, aci_request *v) {
  pthread_mutex_lock(&m->lock);
  aci_transfer *t = v->impl;
  v->impl = NULL;
  if (t != NULL && v->sends) aci_out_cancel(m, v->peer, t);
  else if (t != NULL) aci_in_cancel(m, v->peer, t);
  pthread_mutex_unlock(&m->lock);
}

typedef enum outcome { GOES_ON, OVER, OTHER_SIZE, LEFT, DEADLOCKED } outcome;

/* A message of send and recv that cannot come about, because the peer is in a collective that this
 * rank has not reached. */
static bool is_stuck(const aci_peer *p, const aci_request *v) {
  const aci_transfer *t = v->impl;
  if ((v->channel >> 32 & 1) == 0 || p->descs == NULL || t == NULL) return false;
  return v->sends ? t->begun && !t->granted && t->at < t->total : !t->wanted;
}

static outcome look(aci_mesh *m, const aci_request *v, char *text, size_t n) {
  const aci_peer *p = &m->peers[v->peer];
  const aci_transfer *t = v->impl;
  if (v->over) return OVER;
  if (!v->sends && t != NULL && t->other_size) {
    snprintf(text, n,
             "ranks differ in count: rank %d sends %llu bytes to rank %d, which expects %zu",
             v->peer, (unsigned long long)t->total, m->rank, v->bytes);
    return OTHER_SIZE;
  }
  if (p->state == ACI_LEFT) return LEFT;
  if (is_stuck(p, v) && v->want != NULL && aci_mesh_mutual_wait(m, v->peer, v->want, text, n))
    return DEADLOCKED;
  return GOES_ON;
}

static ac_status look_at_all(aci_mesh *m, aci_request *const *v, int n, bool *over, ac_err *e) {
  char text[512];
  outcome o = GOES_ON;
  const aci_request *at = NULL;
  pthread_mutex_lock(&m->lock);
  for (int i = 0; i < n; i++) {
    const outcome k = look(m, v[i], text, sizeof text);
    if (k == OVER) *over = true;
    if (k <= OVER) continue;
    o = k;
    at = v[i];
    break;
  }
  pthread_mutex_unlock(&m->lock);
  if (o == LEFT) return aci_mesh_left(m, at->peer, at->want, e);
  if (o == DEADLOCKED) return aci_stop(m->world, AC_MISMATCH, -1, e, "%s", text);
  return o == OTHER_SIZE ? AC_FAIL(e, MISMATCH, "%s", text) : AC_OK;
}

ac_status aci_mesh_progress(aci_mesh *m, aci_request *const *v, int n, int wait_ms, ac_err *e) {
  const int64_t until = wait_ms > 0 ? aci_now_ns() + wait_ms * (int64_t)MS : 0;
  bool over = false;
  for (int turn = 0;; turn++) {
    AC_TRY(look_at_all(m, v, n, &over, e));
    if (over && (turn > 0 || wait_ms > 0)) return AC_OK;
    int left = 0;
    if (wait_ms > 0) left = (int)((until - aci_now_ns() + MS - 1) / MS);
    if (turn > 0 && left <= 0) return AC_OK;
    aci_mesh_poll(m, over || left < 0 ? 0 : left);
    AC_TRY(aci_mesh_check_end(m, e));
  }
}
