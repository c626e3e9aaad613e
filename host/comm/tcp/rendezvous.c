/* A rank other than 0 looks for rank 0, shows its info and gets the infos of all. Also the check
 * that two ranks fit into one world. Called by tcp.c. */
#include "comm/tcp/rendezvous.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
  MS = 1000000,
  POLL_MS = 50,
  AGAIN_MS = 50,
  ATTEMPT_MS = 5000,
  HOPE_MS = 10000,
  SAY_AFTER_MS = 3000,
  ANSWER_MS = 3000,
  AUTH_MS = 5000,
  REFUSALS = 8
};

/* ---- may these two be in one world? ---- */
static const char *name(const aci_peer_info *c, char *buf, size_t n) {
  char host[sizeof c->host];
  memcpy(host, c->host, sizeof host);
  aci_text_clean(host, sizeof host);
  snprintf(buf, n, "rank %d (%s:%d)", (int)c->rank, host[0] != 0 ? host : "pid", (int)c->pid);
  return buf;
}

ac_status aci_peer_info_check(const aci_peer_info *ours, const aci_peer_info *theirs, bool *foreign,
                              char *text, size_t n) {
  aci_peer_info t = *theirs;
  char a[80], b[80];
  *foreign = false;
  if (memcmp(t.magic, ours->magic, sizeof t.magic) != 0 || t.order != ours->order ||
      t.protocol != ours->protocol) {
    snprintf(
        text, n,
        "a rank speaks another protocol than rank %d; install the same version of accel everywhere",
        (int)ours->rank);
    return AC_MISMATCH;
  }
  /* a stranger's texts may hold anything. Only peers with the magic and the protocol get so far */
  aci_text_clean(t.version, sizeof t.version);
  aci_text_clean(t.run_id, sizeof t.run_id);
  aci_text_clean(t.script, sizeof t.script);
  name(ours, a, sizeof a);
  name(&t, b, sizeof b);
  /* another job on the same port is refused alone. All differences below are within this job and
   * end it */
  if (t.run_id[0] != 0 && ours->run_id[0] != 0 && strcmp(t.run_id, ours->run_id) != 0) {
    *foreign = true;
    snprintf(
        text, n,
        "%s belongs to job '%s', %s to job '%s'; give each job a port of its own (--main_process_port)",
        b, t.run_id, a, ours->run_id);
    return AC_PEER;
  }
  if (strcmp(t.version, ours->version) != 0) {
    snprintf(
        text, n,
        "ranks differ in version: %s runs accel %s, %s runs accel %s; install the same everywhere",
        a, ours->version, b, t.version);
    return AC_MISMATCH;
  }
  if (t.size != ours->size) {
    snprintf(
        text, n,
        "ranks differ in the size of the world: %s counts %d ranks, %s counts %d; give all machines the "
        "same numbers",
        a, (int)ours->size, b, (int)t.size);
    return AC_MISMATCH;
  }
  if (t.rank < 0 || t.rank >= ours->size) {
    snprintf(text, n, "%s cannot be: the world has %d ranks", b, (int)ours->size);
    return AC_MISMATCH;
  }
  if (t.script_hash != 0 && ours->script_hash != 0 && t.script_hash != ours->script_hash) {
    snprintf(
        text, n,
        "ranks differ in their script: %s on %s and %s on %s have different contents; copy one to "
        "all machines",
        ours->script, a, t.script, b);
    return AC_MISMATCH;
  }
  return AC_OK;
}

/* ---- names ---- */
/* "localhost" is the loopback by its name (RFC 6761): no resolver and no /etc/hosts is asked, which
 * containers may lack. */
static int loopback(char (*out)[ACI_ADDRESS], int max) {
  static const char *const numeric[] = {"127.0.0.1", "::1"};
  int n = 0;
  for (; n < 2 && n < max; n++) snprintf(out[n], ACI_ADDRESS, "%s", numeric[n]);
  return n;
}

int aci_resolve(const char *host, char (*out)[ACI_ADDRESS], int max, bool *may_change, char *why,
                size_t n) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;
  *may_change = false;
  if (strcasecmp(host, "localhost") == 0) return loopback(out, max);
  const int rc = getaddrinfo(host, NULL, &hints, &all);
  int count = 0;
  *may_change = rc == EAI_AGAIN || rc == EAI_SYSTEM;
  for (const struct addrinfo *a = all; rc == 0 && a != NULL && count < max; a = a->ai_next)
    if (getnameinfo(a->ai_addr, a->ai_addrlen, out[count], ACI_ADDRESS, NULL, 0, NI_NUMERICHOST) ==
        0)
      count++;
  if (all != NULL) freeaddrinfo(all);
  if (count == 0)
    snprintf(why, n, "%s",
             rc == 0            ? "no address"
             : rc == EAI_SYSTEM ? strerror(errno)
                                : gai_strerror(rc));
  return count;
}

bool aci_listens_everywhere(const aci_place *p, const char *found) {
  return p->machines > 1 && aci_address_is_loopback(found) &&
         !aci_address_is_loopback(p->address) && strcasecmp(p->address, "localhost") != 0;
}

/* ---- coming ---- */
typedef struct client {
  aci_mesh *m;
  int fd, refusals; /* attempts in a row that ended for want of the right secret */
  int64_t until;
  char why[200];
} client;

static ac_status client_failed(client *v, ac_err *e) {
  const aci_place *p = &v->m->world->place;
  char place[280];
  return AC_FAIL(
      e, PEER,
      "rank %d cannot reach rank 0 at %s: %s; check that rank 0 runs there, --main_process_ip and "
      "--main_process_port "
      "(MASTER_ADDR, MASTER_PORT), and the firewall",
      v->m->rank, aci_endpoint_text(p->address, p->port, place, sizeof place), v->why);
}

/* Waits for an event on the socket. False: not by `until`, or the job ends. */
static bool wait_event(client *v, short events, int64_t until) {
  for (;;) {
    struct pollfd p = {.fd = v->fd, .events = events};
    if (poll(&p, 1, POLL_MS) > 0) return true;
    if (aci_now_ns() > until || aci_aborted(v->m->world, NULL) != AC_OK) return false;
  }
}

/* One attempt at one address. */
static bool try_connect(client *v, const char *address) {
  const int64_t attempt = aci_now_ns() + ATTEMPT_MS * (int64_t)MS;
  v->fd = aci_socket_dial(address, v->m->world->place.port, v->why, sizeof v->why);
  if (v->fd < 0) return false;
  int error = ETIMEDOUT;
  if (wait_event(v, POLLOUT, attempt < v->until ? attempt : v->until))
    error = aci_socket_error(v->fd);
  if (error == 0) return true;
  snprintf(v->why, sizeof v->why, "%s", strerror(error));
  close(v->fd);
  v->fd = -1;
  return false;
}

/* Names are looked up anew each time: they may come up after us. */
static ac_status find_rank_0(client *v, ac_err *e) {
  const aci_place *p = &v->m->world->place;
  char found[ACI_RV_ADDRESSES][ACI_ADDRESS], place[280];
  const int64_t began = aci_now_ns(), hope = began + HOPE_MS * (int64_t)MS;
  bool said = false;
  for (;;) {
    bool may_change;
    const int n =
        aci_resolve(p->address, found, ACI_RV_ADDRESSES, &may_change, v->why, sizeof v->why);
    for (int i = 0; i < n; i++)
      if (try_connect(v, found[i])) return AC_OK;
    AC_TRY(aci_aborted(v->m->world, e));
    const int64_t now = aci_now_ns();
    if (now > v->until || (n == 0 && (!may_change || now > hope))) return client_failed(v, e);
    if (!said && now - began > SAY_AFTER_MS * (int64_t)MS) {
      said = true;
      ac_log_write(AC_LOG_INFO, "comm", "rank %d waits for rank 0 at %s: %s", v->m->rank,
                   aci_endpoint_text(p->address, p->port, place, sizeof place), v->why);
    }
    struct pollfd nothing = {.fd = -1};
    poll(&nothing, 1, AGAIN_MS);
  }
}

/* Listens on the interface that leads to rank 0, since the others use it as well. */
static ac_status listen_near(client *v, ac_err *e) {
  const aci_place *p = &v->m->world->place;
  char here[ACI_ADDRESS], there[ACI_ADDRESS];
  aci_socket_address(v->fd, false, here, sizeof here);
  aci_socket_address(v->fd, true, there, sizeof there);
  if (aci_listens_everywhere(p, there)) return aci_mesh_listen(v->m, NULL, e);
  return aci_mesh_listen(v->m, aci_address_is_loopback(there) ? there : here, e);
}

/* All n bytes or nothing. Rank 0 knows who is missing when the time is up: its answer is waited for
 * a little longer. */
static bool get(client *v, void *to, size_t n) {
  for (size_t got = 0; got < n;) {
    if (!wait_event(v, POLLIN, v->until + ANSWER_MS * (int64_t)MS)) {
      snprintf(v->why, sizeof v->why, "connected, but rank 0 does not answer");
      return false;
    }
    const ssize_t k = recv(v->fd, (char *)to + got, n - got, 0);
    if (k > 0) got += (size_t)k;
    if (k > 0 || (k < 0 && (errno == EAGAIN || errno == EINTR))) continue;
    snprintf(v->why, sizeof v->why, "%s", k == 0 ? "it closed the connection" : strerror(errno));
    return false;
  }
  return true;
}

/* The message for a machine whose secret differs, or that has none when others do. */
static ac_status client_refused(client *v, const aci_auth *a, ac_err *e) {
  const aci_place *p = &v->m->world->place;
  char place[280];
  aci_endpoint_text(p->address, p->port, place, sizeof place);
  if (a->fault == ACI_AUTH_STRANGER) {
    snprintf(v->why, sizeof v->why, "another program or another version of accel listens there");
    return client_failed(v, e);
  }
  if (a->fault == ACI_AUTH_THEY_OPEN || a->fault == ACI_AUTH_WE_OPEN)
    return AC_FAIL(
        e, PEER, "rank %d cannot join rank 0 at %s: %s; give --insecure to all machines or to none",
        v->m->rank, place, aci_auth_why(a));
  return AC_FAIL(
      e, PEER,
      "rank %d cannot join rank 0 at %s: %s (job %s, secret from %s); give all machines the same secret "
      "(ACCEL_JOB_SECRET, --job-secret-file) and the same address of rank 0 or --run-id",
      v->m->rank, place, aci_auth_why(a), v->m->run_id, v->m->key.origin);
}

/* False: try again. An error in *st: give up. One failure proves nothing: others can reach the
 * port, and rank 0 closes connections when there are many. */
static bool authenticate(client *v, ac_status *st, ac_err *e) {
  aci_mesh *m = v->m;
  aci_auth a = {.key = m->key.insecure ? NULL : m->key.key,
                .run_id = m->run_id,
                .purpose = ACI_FOR_RENDEZVOUS,
                .from = m->rank,
                .world = m->size};
  const int64_t now = aci_now_ns(), limit = now + AUTH_MS * (int64_t)MS;
  size_t taken;
  for (;;) {
    const aci_auth_state s = aci_auth_step(&a, v->fd, &taken);
    if (s == ACI_AUTH_DONE) break;
    if (s == ACI_AUTH_MORE && wait_event(v, POLLIN, limit)) continue;
    snprintf(v->why, sizeof v->why, "%s",
             s == ACI_AUTH_MORE ? "connected, but rank 0 does not answer" : aci_auth_why(&a));
    if (s == ACI_AUTH_MORE || a.fault == ACI_AUTH_EARLY || a.fault == ACI_AUTH_BROKEN) return false;
    if (++v->refusals < REFUSALS) return false;
    *st = client_refused(v, &a, e);
    return false;
  }
  v->refusals = 0;
  m->generation = a.generation;
  return true;
}

/* False: try again. An error in *st: give up. */
static bool exchange_info(client *v, aci_peer_info *infos, ac_status *st, ac_err *e) {
  aci_mesh *m = v->m;
  aci_rv_hello h;
  aci_rv_head head;
  memcpy(h.magic, ACI_RV_MAGIC, sizeof h.magic);
  h.info = m->own;
  *st = AC_OK;
  if (!authenticate(v, st, e)) return *st != AC_OK;
  if (send(v->fd, &h, sizeof h, MSG_NOSIGNAL) != (ssize_t)sizeof h || !get(v, &head, sizeof head))
    return false;
  const size_t table = (size_t)m->size * sizeof *infos;
  if (memcmp(head.magic, ACI_RV_MAGIC, sizeof head.magic) == 0 && head.kind == ACI_RV_TABLE &&
      head.bytes == table) {
    if (!get(v, infos, table)) return false;
    for (int r = 0; r < m->size;
         r++) /* ours may be known to rank 0 by an address that leads nowhere from here */
      if (infos[r].address[0][0] == 0)
        aci_socket_address(v->fd, true, infos[r].address[0], ACI_ADDRESS);
    aci_mesh_adopt(m, 0, v->fd);
    v->fd = -1;
    return true;
  }
  char text[ACI_RV_TEXT];
  if (memcmp(head.magic, ACI_RV_MAGIC, sizeof head.magic) == 0 && head.kind == ACI_RV_REFUSED &&
      head.bytes == sizeof text) {
    if (!get(v, text, sizeof text)) return false;
    aci_text_clean(text, sizeof text);
    *st = ac_err_set(e, head.code > 0 && head.code <= AC_TIMEOUT ? (ac_status)head.code : AC_PEER,
                     __FILE__, __LINE__, "%s", text);
    return true;
  }
  snprintf(v->why, sizeof v->why, "another program listens there");
  *st = client_failed(v, e);
  return true;
}

static ac_status join_rank_0(client *v, aci_peer_info *infos, ac_err *e) {
  for (;;) {
    ac_status st = AC_OK;
    AC_TRY(find_rank_0(v, e));
    if (v->m->listener < 0) AC_TRY(listen_near(v, e));
    if (exchange_info(v, infos, &st, e)) return st;
    close(v->fd);
    v->fd = -1;
    AC_TRY(aci_aborted(v->m->world, e));
    if (aci_now_ns() > v->until) return client_failed(v, e);
    struct pollfd nothing = {.fd = -1};
    poll(&nothing, 1, AGAIN_MS);
  }
}

ac_status aci_rendezvous(aci_mesh *m, aci_peer_info *infos, ac_err *e) {
  const aci_place *p = &m->world->place;
  if (p->address[0] == 0)
    return AC_FAIL(
        e, INVALID,
        "backend tcp: no address of rank 0; give --main_process_ip and --main_process_port "
        "(MASTER_ADDR, MASTER_PORT)");
  if (p->port < 1 || p->port > 65535)
    return AC_FAIL(
        e, INVALID,
        "backend tcp: ranks cannot meet at port %d; give --main_process_port (MASTER_PORT) in 1..65535",
        p->port);
  if (m->rank == 0) return aci_rendezvous_serve(m, infos, e);
  client v = {.m = m, .fd = -1, .until = aci_now_ns() + aci_rendezvous_limit(m)};
  ac_status st = join_rank_0(&v, infos, e);
  if (v.fd >= 0) close(v.fd);
  return st;
}
