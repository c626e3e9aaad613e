/* Rank 0's side of the rendezvous: waits until every rank has shown its info, then hands all infos
 * to all. A connection shows its info after it has authenticated (door.h). Others are closed, learn
 * nothing and change nothing. A mismatch within the job (versions, sizes, scripts, a rank that
 * comes twice) ends it with one line on every rank. Called by rendezvous.c. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/tcp/door.h"
#include "comm/tcp/rendezvous.h"
#include "comm/wait.h"

enum {
  MS = 1000000,
  POLL_MS = 50,
  MOST_INBOUND = 256,
  INBOUND_MS = 10000,
  SAY_EVERY_MS = 10000,
  RESTART_MS = 5000,
  SEND_MS = 5000,
  LINGER_MS = 1000
};

typedef struct inbound { /* an authenticated connection whose info has not come yet */
  int fd, from;
  int64_t until;
  size_t got;
  aci_rv_hello hello;
} inbound;

typedef struct server {
  aci_mesh *m;
  aci_peer_info *infos;
  int listener;
  int *fds; /* of ranks that came. -1: not yet */
  int n_inbound;
  inbound *inbounds;
  aci_door *door;
  struct pollfd *polls;
  ac_status failed; /* the job cannot begin: every newcomer gets the text */
  char text[ACI_RV_TEXT];
} server;

/* ---- listening ---- */
static ac_status cannot_listen(const aci_place *p, int reason, const char *why, ac_err *e) {
  char at[280], here[64] = "";
  aci_endpoint_text(p->address, p->port, at, sizeof at);
  if (gethostname(here, sizeof here - 1) != 0) here[0] = 0;
  if (reason == EADDRINUSE)
    return AC_FAIL(e, IO,
                   "rank 0 cannot listen at %s: another program has the port; choose another by "
                   "--main_process_port (MASTER_PORT)",
                   at);
  if (reason == EADDRNOTAVAIL)
    return AC_FAIL(
        e, IO,
        "rank 0 cannot listen at %s: this machine (%s) does not have the address; rank 0 must run on the machine that "
        "--main_process_ip "
        "(MASTER_ADDR) names",
        at, here);
  return AC_FAIL(e, IO,
                 "rank 0 cannot listen at %s: %s; check --main_process_ip and --main_process_port "
                 "(MASTER_ADDR, MASTER_PORT)",
                 at, why);
}

static ac_status begin_listening(server *s, ac_err *e) {
  const aci_place *p = &s->m->world->place;
  char found[ACI_RV_ADDRESSES][ACI_ADDRESS], why[128];
  bool may_change;
  const int n = aci_resolve(p->address, found, ACI_RV_ADDRESSES, &may_change, why, sizeof why);
  if (n == 0) return cannot_listen(p, 0, why, e);
  const bool all = aci_listens_everywhere(p, found[0]);
  /* the ranks of the attempt before may hold the port for a moment */
  const int64_t until = aci_now_ns() + (p->restart > 0 ? RESTART_MS : 0) * (int64_t)MS;
  for (;;) {
    int reason = EADDRNOTAVAIL;
    for (int i = 0; i < (all ? 1 : n); i++) {
      s->listener = aci_socket_listen(all ? NULL : found[i], p->port, NULL, why, sizeof why);
      if (s->listener >= 0) {
        if (all)
          ac_log_write(
              AC_LOG_INFO, "comm",
              "rank 0 listens on all interfaces: '%s' is the loopback (%s) here, and other machines cannot "
              "reach that; give a numeric address (--main_process_ip) to listen only there",
              p->address, found[0]);
        return AC_OK;
      }
      if (reason == EADDRNOTAVAIL) reason = errno;
    }
    if (reason != EADDRINUSE || aci_now_ns() > until) return cannot_listen(p, reason, why, e);
    struct pollfd nothing = {.fd = -1};
    poll(&nothing, 1, POLL_MS);
  }
}

/* ---- answers ---- */
/* Blocking by hand. A rank that does not read within seconds is given up. */
static bool give(int fd, const void *p, size_t n) {
  const int64_t until = aci_now_ns() + SEND_MS * (int64_t)MS;
  for (size_t at = 0; at < n;) {
    const ssize_t k = send(fd, (const char *)p + at, n - at, MSG_NOSIGNAL);
    if (k > 0) at += (size_t)k;
    if (k > 0 || (k < 0 && errno == EINTR)) continue;
    struct pollfd w = {.fd = fd, .events = POLLOUT};
    if (k == 0 || (errno != EAGAIN && errno != EWOULDBLOCK) || aci_now_ns() > until) return false;
    poll(&w, 1, POLL_MS);
  }
  return true;
}

static void refuse(int fd, ac_status code, const char *text) {
  struct {
    aci_rv_head head;
    char text[ACI_RV_TEXT];
  } r = {.head = {.kind = ACI_RV_REFUSED, .bytes = ACI_RV_TEXT, .code = (int32_t)code}};
  memcpy(r.head.magic, ACI_RV_MAGIC, sizeof r.head.magic);
  snprintf(r.text, sizeof r.text, "%s", text);
  give(fd, &r, sizeof r);
}

static ac_status refuse_all(server *s, ac_status code, const char *text, ac_err *e) {
  s->failed = code;
  snprintf(s->text, sizeof s->text, "%s", text);
  for (int r = 1; r < s->m->size; r++)
    if (s->fds[r] >= 0) refuse(s->fds[r], code, text);
  return ac_err_set(e, code, __FILE__, __LINE__, "%s", text);
}

/* ---- inbound connections ---- */
/* Keeps the connection for the rank that its hello names, unless that rank has one. */
static void keep_connection(server *s, inbound *g) {
  const int r = g->hello.info.rank;
  if (r <= 0 || r >= s->m->size || s->fds[r] >= 0) return;
  s->fds[r] = g->fd;
  g->fd = -1;
}

static ac_status admit(server *s, inbound *g, ac_err *e) {
  aci_mesh *m = s->m;
  aci_peer_info *c = &g->hello.info;
  char text[ACI_RV_TEXT], source[ACI_ADDRESS];
  bool foreign;
  /* a peer from another job is refused and changes nothing. A difference within the job ends it for
   * all */
  ac_status st = aci_peer_info_check(&m->own, c, &foreign, text, sizeof text);
  if (s->failed != AC_OK) {
    refuse(g->fd, s->failed, s->text);
    keep_connection(s, g);
    return AC_OK;
  }
  if (st != AC_OK && foreign) {
    refuse(g->fd, st, text);
    ac_log_write(AC_LOG_WARN, "comm", "refused at the rendezvous: %s", text);
    return AC_OK;
  }
  if (st == AC_OK && (c->rank == 0 || s->fds[c->rank] >= 0)) {
    const aci_peer_info *first = c->rank == 0 ? &m->own : &s->infos[c->rank];
    st = AC_MISMATCH;
    aci_text_clean(c->host, sizeof c->host);
    snprintf(
        text, sizeof text,
        "two processes are rank %d: %s:%d and %s:%d; give each machine a --machine_rank of its own, "
        "each job a "
        "--main_process_port of its own",
        (int)c->rank, first->host, (int)first->pid, c->host, (int)c->pid);
  }
  if (st != AC_OK) {
    refuse(g->fd, st, text);
    refuse_all(s, st, text, e);
    keep_connection(s, g);
    return st;
  }
  /* the address is the source of the connection. For rank 0's own machine it is left empty: the
   * address at which rank 0 was reached */
  aci_peer_info *place = &s->infos[c->rank];
  *place = *c;
  aci_text_clean(place->host, sizeof place->host);
  for (int i = 0; i < ACI_MESH_ADDRESSES; i++) aci_text_clean(place->address[i], ACI_ADDRESS);
  aci_socket_address(g->fd, true, source, sizeof source);
  if (aci_address_is_loopback(source))
    memset(place->address, 0, sizeof place->address); /* it is rank 0's machine */
  else memcpy(place->address[0], source, sizeof source);
  keep_connection(s, g);
  return AC_OK;
}

static void drop(server *s, inbound *g) {
  if (g->fd >= 0) close(g->fd);
  *g = s->inbounds[--s->n_inbound];
}

static void authenticated(void *user, int fd, int from, int world) {
  server *s = user;
  /* its world size is compared when its info has come, so that every rank gets the error */
  (void)world;
  if (s->n_inbound == MOST_INBOUND) { /* it comes again */
    close(fd);
    return;
  }
  inbound *g = &s->inbounds[s->n_inbound++];
  memset(g, 0, sizeof *g);
  g->fd = fd;
  g->from = from;
  g->until = aci_now_ns() + INBOUND_MS * (int64_t)MS;
}

static ac_status serve_inbound(server *s, inbound *g, int64_t now, ac_err *e) {
  const ssize_t n = recv(g->fd, (char *)&g->hello + g->got, sizeof g->hello - g->got, 0);
  bool ok = now <= g->until && (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)));
  if (n > 0) g->got += (size_t)n;
  if (ok && g->got < sizeof g->hello) return AC_OK;
  ok = ok && memcmp(g->hello.magic, ACI_RV_MAGIC, sizeof g->hello.magic) == 0 &&
       g->hello.info.rank == g->from;
  const ac_status st = ok ? admit(s, g, e) : AC_OK;
  drop(s, g);
  return st;
}

/* A rank that came may leave before all are here. Another process may take its place. */
static void serve_rank(server *s, int r) {
  char byte;
  const ssize_t n = recv(s->fds[r], &byte, 1, MSG_PEEK);
  if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return;
  close(s->fds[r]);
  s->fds[r] = -1;
}

static int missing(const server *s, char *list, size_t bytes) {
  int n = 0;
  size_t at = 0;
  for (int r = 1; r < s->m->size; r++) {
    if (s->fds[r] >= 0) continue;
    if (n++ < 8) at += (size_t)snprintf(list + at, bytes - at, "%s%d", at > 0 ? ", " : "", r);
  }
  if (n > 8) snprintf(list + at, bytes - at, " and %d more", n - 8);
  return n;
}

static ac_status poll_once(server *s, ac_err *e) {
  int n = aci_door_polls(s->door, s->polls);
  const int first = n;
  for (int r = 1; r < s->m->size; r++)
    s->polls[n++] = (struct pollfd){.fd = s->failed == AC_OK ? s->fds[r] : -1, .events = POLLIN};
  for (int i = 0; i < s->n_inbound; i++)
    s->polls[n++] = (struct pollfd){.fd = s->inbounds[i].fd, .events = POLLIN};
  if (poll(s->polls, (nfds_t)n, POLL_MS) < 0) return AC_OK;
  for (int r = 1; r < s->m->size; r++)
    if (s->fds[r] >= 0 && s->polls[first + r - 1].revents != 0) serve_rank(s, r);
  aci_door_serve(s->door, authenticated, s);
  const int64_t now = aci_now_ns();
  /* backwards: the last one takes the place of one that goes */
  for (int i = s->n_inbound - 1; i >= 0; i--) AC_TRY(serve_inbound(s, &s->inbounds[i], now, e));
  return AC_OK;
}

static const char *strangers(const server *s, char *buf, size_t n) {
  const unsigned long long closed = s->door->gate.closed;
  buf[0] = 0;
  if (closed > 0)
    snprintf(buf, n, ", and closed %llu connection%s without the secret of the job", closed,
             closed > 1 ? "s" : "");
  return buf;
}

static ac_status wait_for_all(server *s, ac_err *e) {
  const aci_place *p = &s->m->world->place;
  const int64_t began = aci_now_ns(), limit = aci_rendezvous_limit(s->m);
  char list[96], text[ACI_RV_TEXT], at[280], others[80];
  aci_endpoint_text(p->address, p->port, at, sizeof at);
  for (int64_t said = began;;) {
    const int n = missing(s, list, sizeof list);
    if (n == 0) return AC_OK;
    ac_err why;
    if (aci_aborted(s->m->world, &why) != AC_OK) return refuse_all(s, why.code, why.msg, e);
    const int64_t now = aci_now_ns();
    if (now - began > limit) {
      snprintf(
          text, sizeof text,
          "rank 0 waited %.3g s at %s for rank%s %s of %d%s; check that they were started, and that they "
          "can reach this address",
          (double)(now - began) / 1e9, at, n > 1 ? "s" : "", list, s->m->size,
          strangers(s, others, sizeof others));
      return refuse_all(s, AC_TIMEOUT, text, e);
    }
    if (now - said > SAY_EVERY_MS * (int64_t)MS) {
      said = now;
      ac_log_write(AC_LOG_INFO, "comm", "rank 0 waits at %s for rank%s %s of %d", at,
                   n > 1 ? "s" : "", list, s->m->size);
    }
    AC_TRY(poll_once(s, e));
  }
}

/* Ranks that start a little later would try until their timeout. */
static void tell_late_ones(server *s) {
  char list[96];
  const int64_t until = aci_now_ns() + LINGER_MS * (int64_t)MS;
  while (missing(s, list, sizeof list) > 0 && aci_now_ns() < until) poll_once(s, NULL);
}

static ac_status hand_out(server *s, ac_err *e) {
  aci_mesh *m = s->m;
  aci_rv_head head = {.kind = ACI_RV_TABLE,
                      .bytes = (uint32_t)((size_t)m->size * sizeof *s->infos)};
  memcpy(head.magic, ACI_RV_MAGIC, sizeof head.magic);
  s->infos[0] = m->own;
  memset(s->infos[0].address, 0, sizeof s->infos[0].address);
  for (int r = 1; r < m->size; r++) {
    if (!give(s->fds[r], &head, sizeof head) || !give(s->fds[r], s->infos, head.bytes)) {
      char text[ACI_RV_TEXT];
      snprintf(text, sizeof text, "rank %d (%s:%d) went away while the ranks met", r,
               s->infos[r].host, (int)s->infos[r].pid);
      return refuse_all(s, AC_PEER, text, e);
    }
  }
  for (int r = 1; r < m->size; r++) {
    aci_mesh_adopt(m, r, s->fds[r]);
    s->fds[r] = -1;
  }
  return AC_OK;
}

ac_status aci_rendezvous_serve(aci_mesh *m, aci_peer_info *infos, ac_err *e) {
  const size_t size = (size_t)m->size;
  server s = {.m = m, .infos = infos, .listener = -1};
  s.fds = malloc(size * sizeof *s.fds);
  s.inbounds = malloc(MOST_INBOUND * sizeof *s.inbounds);
  s.polls = malloc((size + MOST_INBOUND + ACI_DOOR_POLLS) * sizeof *s.polls);
  ac_status st = AC_OK;
  if (s.fds == NULL || s.inbounds == NULL || s.polls == NULL)
    st = AC_FAIL(e, OOM, "no memory to meet %d ranks", m->size);
  for (int r = 0; r < m->size && s.fds != NULL; r++) s.fds[r] = -1;
  if (st == AC_OK && m->size > 1) {
    st = begin_listening(&s, e);
    s.door = st == AC_OK ? aci_door_new(m, ACI_FOR_RENDEZVOUS, NULL, s.listener) : NULL;
    if (st == AC_OK && s.door == NULL) st = AC_FAIL(e, OOM, "no memory to meet %d ranks", m->size);
    if (st == AC_OK) st = wait_for_all(&s, e);
    if (s.failed == AC_MISMATCH) tell_late_ones(&s);
    if (st == AC_OK) st = hand_out(&s, e);
  }
  for (int r = 0; r < m->size && s.fds != NULL; r++)
    if (s.fds[r] >= 0) close(s.fds[r]);
  while (s.n_inbound > 0) drop(&s, &s.inbounds[0]);
  aci_door_free(s.door);
  if (s.listener >= 0) close(s.listener);
  free(s.polls);
  free(s.inbounds);
  free(s.fds);
  return st;
}
