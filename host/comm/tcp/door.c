/* A listener that lets in peers which have proved who they are. See door.h. */
#include "comm/tcp/door.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MS = 1000000, ACCEPTS = 64 };
#define NOBODY UINT64_MAX /* source of no connection. ::1 is 0 */

/* A machine's ranks come from one address, and most of them at once. */
static const aci_gate_limits limits = {.most = ACI_GATE_MOST,
                                       .of_source = ACI_GATE_MOST / 2,
                                       .ns = 5000 * (int64_t)MS,
                                       .bytes = ACI_RESPONSE,
                                       .grace_ns = 5 * (int64_t)MS};

static const char *what_to_do(aci_auth_fault fault) {
  switch (fault) {
    case ACI_AUTH_NO_PROOF:
      return "if it is a machine of this job, give all machines the same secret (ACCEL_JOB_SECRET, --job-secret-file) and the same "
             "address of rank 0 or --run-id";
    case ACI_AUTH_THEY_OPEN:
    case ACI_AUTH_WE_OPEN:
      return "if it is a machine of this job, give --insecure to all machines or to none";
    case ACI_AUTH_STRANGER:
      return "if it is a machine of this job, install the same version of accel everywhere";
    default: return "";
  }
}

aci_door *aci_door_new(const aci_mesh *m, aci_auth_purpose purpose, const uint8_t *token,
                       int listener) {
  aci_door *d = calloc(1, sizeof *d);
  if (d == NULL) return NULL;
  d->m = m;
  d->purpose = purpose;
  d->token = token;
  d->listener = listener;
  snprintf(d->name, sizeof d->name, "rank %d of job %.150s", m->rank, m->run_id);
  aci_gate_init(&d->gate, "comm", d->name, &limits);
  for (int i = 0; i < ACI_GATE_MOST; i++) d->visitor[i].fd = -1;
  return d;
}

int aci_door_polls(const aci_door *d, struct pollfd *p) {
  int n = 0;
  p[n++] = (struct pollfd){.fd = d->listener, .events = POLLIN};
  for (int i = 0; i < ACI_GATE_MOST; i++)
    if (d->visitor[i].fd >= 0) p[n++] = (struct pollfd){.fd = d->visitor[i].fd, .events = POLLIN};
  return n;
}

static void refuse(aci_door *d, int i, const char *why, const char *advice) {
  aci_visitor *v = &d->visitor[i];
  close(v->fd);
  v->fd = -1;
  aci_gate_refuse(&d->gate, i, v->from, why, advice);
}

static void step(aci_door *d, int i, aci_door_admit admit, void *user) {
  aci_visitor *v = &d->visitor[i];
  size_t taken;
  const aci_auth_state s = aci_auth_step(&v->auth, v->fd, &taken);
  const bool within = aci_gate_take(&d->gate, i, taken);
  if (s == ACI_AUTH_DONE) {
    const int fd = v->fd;
    v->fd = -1;
    aci_gate_leave(&d->gate, i);
    admit(user, fd, v->auth.from, v->auth.world);
  } else if (s == ACI_AUTH_FAILED || !within) {
    refuse(d, i, aci_auth_why(&v->auth), what_to_do(v->auth.fault));
  }
}

/* Makes room for others. A reset: a peer whose proof was on its way must not take it for a
 * refusal. */
static void displace(aci_door *d, int i, const char *why) {
  setsockopt(d->visitor[i].fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1},
             sizeof(struct linger));
  refuse(d, i, why, "");
}

/* Whom a gate without places would displace: the last to come may be a peer that is about to
 * answer. -1: all are within their grace. */
static int least_of_all(const aci_door *d, int64_t now) {
  int least = -1;
  for (int i = 0; i < ACI_GATE_MOST; i++) {
    const aci_gate_place *p = &d->gate.place[i], *q = least < 0 ? NULL : &d->gate.place[least];
    if (d->visitor[i].fd < 0 || now < p->until - limits.ns + limits.grace_ns) continue;
    if (q == NULL || p->bytes < q->bytes || (p->bytes == q->bytes && p->until < q->until))
      least = i;
  }
  return least;
}

/* False: nobody waits, or there is no place. */
static bool accept_one(aci_door *d, int64_t now, aci_door_admit admit, void *user) {
  struct sockaddr_storage a;
  socklen_t n = sizeof a;
  bool displaces;
  memset(&a, 0, sizeof a);
  /* the kernel keeps it for a moment */
  if (aci_gate_find(&d->gate, NOBODY, now, &displaces) < 0) return false;
  const int fd = accept4(d->listener, (struct sockaddr *)&a, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
  /* visitors hold descriptors that a peer needs */
  if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
    const int i = least_of_all(d, now);
    if (i >= 0) displace(d, i, "this rank has no more file descriptors");
    return i >= 0;
  }
  if (fd < 0) return errno == EINTR || errno == ECONNABORTED;
  const uint64_t source = aci_gate_source((const struct sockaddr *)&a);
  const int i = aci_gate_find(&d->gate, source, now, &displaces);
  if (i < 0) { /* its source has used up its share within a moment */
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    close(fd);
    d->gate.closed++;
    return true;
  }
  if (displaces) displace(d, i, "it has not authenticated, and others wait");
  aci_socket_tune(fd);
  aci_visitor *v = &d->visitor[i];
  const aci_mesh *m = d->m;
  *v = (aci_visitor){.fd = fd,
                     .auth = {.key = m->key.insecure ? NULL : m->key.key,
                              .run_id = m->run_id,
                              .purpose = d->purpose,
                              .listens = true,
                              .generation = m->generation,
                              .to = m->rank}};
  aci_socket_address(fd, true, v->from, sizeof v->from);
  if (d->token != NULL) memcpy(v->auth.token, d->token, sizeof v->auth.token);
  aci_gate_enter(&d->gate, i, source, now);
  step(d, i, admit, user); /* the challenge goes out */
  return true;
}

void aci_door_serve(aci_door *d, aci_door_admit admit, void *user) {
  const int64_t now = aci_now_ns();
  for (int i = 0; i < ACI_GATE_MOST; i++) {
    if (d->visitor[i].fd < 0) continue;
    step(d, i, admit, user);
    if (d->visitor[i].fd >= 0 && aci_gate_late(&d->gate, i, now))
      refuse(d, i, "it did not authenticate in time", "");
  }
  for (int k = 0; d->listener >= 0 && k < ACCEPTS && accept_one(d, now, admit, user); k++) continue;
}

void aci_door_free(aci_door *d) {
  if (d == NULL) return;
  for (int i = 0; i < ACI_GATE_MOST; i++)
    if (d->visitor[i].fd >= 0) close(d->visitor[i].fd);
  if (d->gate.closed > 1)
    ac_log_write(AC_LOG_INFO, "comm", "%s closed %llu connections that did not authenticate",
                 d->name, (unsigned long long)d->gate.closed);
  free(d);
}
