/* Links every rank to every other: each connects to those below it, which listen. Both ends show the
 * world's token, so that a stranger on the port, or an address that leads to another machine, is told
 * apart. Called once, by aci_mesh_connect. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/tcp/mesh_impl.h"
#include "comm/wait.h"

enum {
  MS = 1000000,
  POLL_MS = 20,
  MOST_INBOUND = 64,
  INBOUND_MS = 5000,
  ATTEMPT_MS = 3000,
  AGAIN_MS = 100,
  LIMIT_MS = 30000
};

typedef struct hello {
  char magic[8];
  uint8_t token[16];
  int32_t from, to;
} hello;
_Static_assert(sizeof(hello) == 32, "no padding");

typedef struct dial {  /* to a lower rank */
  int rank, fd, which; /* which: of its addresses */
  bool connected;
  int64_t until; /* of this attempt; without a socket: when to try again */
  size_t got;
  hello answer;
  char why[128];
} dial;

typedef struct inbound { /* an accepted connection whose hello has not come yet */
  int fd;
  int64_t until;
  size_t got;
  hello said;
} inbound;

typedef struct linking {
  aci_mesh *m;
  const uint8_t *token;
  dial *dials;
  int n_dials, n_inbound;
  inbound inbounds[MOST_INBOUND];
  struct pollfd *polls;
} linking;

static hello introduce(const linking *k, int to) {
  hello h = {.magic = "accelms", .from = k->m->rank, .to = to};
  memcpy(h.token, k->token, sizeof h.token);
  return h;
}

static bool is_right(const linking *k, const hello *h, int from) {
  const hello expected = {.magic = "accelms", .from = from, .to = k->m->rank};
  return memcmp(h->magic, expected.magic, sizeof h->magic) == 0 &&
         memcmp(h->token, k->token, sizeof h->token) == 0 && h->from == from && h->to == k->m->rank;
}

/* ---- to lower ranks ---- */
static const char *address_of(const dial *d, const aci_peer_info *c) { return c->address[d->which]; }

static void dial_failed(linking *k, dial *d, const char *why, int64_t now) {
  const aci_peer_info *c = &k->m->infos[d->rank];
  char place[ACI_ADDRESS + 16];
  if (d->fd >= 0) close(d->fd);
  d->fd = -1;
  snprintf(d->why, sizeof d->why, "%s: %.40s",
           aci_endpoint_text(address_of(d, c), c->port, place, sizeof place), why);
  d->which++;
  d->until = now;
  if (d->which < ACI_MESH_ADDRESSES && address_of(d, c)[0] != 0) return;
  d->which = 0;
  d->until = now + AGAIN_MS * (int64_t)MS;
}

static void dial_begin(linking *k, dial *d, int64_t now) {
  const aci_peer_info *c = &k->m->infos[d->rank];
  char why[64];
  d->fd = aci_socket_dial(address_of(d, c), c->port, why, sizeof why);
  d->connected = false;
  d->got = 0;
  d->until = now + ATTEMPT_MS * (int64_t)MS;
  if (d->fd < 0) dial_failed(k, d, why, now);
}

/* NULL: it goes on, or is linked; else what went wrong. */
static const char *dial_step(linking *k, dial *d) {
  if (!d->connected) {
    const int error = aci_socket_error(d->fd);
    const hello h = introduce(k, d->rank);
    if (error != 0) return strerror(error);
    d->connected = true;
    return send(d->fd, &h, sizeof h, MSG_NOSIGNAL) == (ssize_t)sizeof h ? NULL : strerror(errno);
  }
  const ssize_t n = recv(d->fd, (char *)&d->answer + d->got, sizeof d->answer - d->got, 0);
  if (n == 0) return "closed by what listens there";
  if (n < 0) return errno == EAGAIN || errno == EINTR ? NULL : strerror(errno);
  d->got += (size_t)n;
  if (d->got < sizeof d->answer) return NULL;
  if (!is_right(k, &d->answer, d->rank)) return "something else listens there";
  aci_mesh_adopt(k->m, d->rank, d->fd);
  d->fd = -1;
  return NULL;
}

static void dial_serve(linking *k, dial *d, short events, int64_t now) {
  const char *failed = events != 0 ? dial_step(k, d) : NULL;
  if (failed == NULL && d->fd >= 0 && now > d->until) failed = "no answer";
  if (failed != NULL) dial_failed(k, d, failed, now);
}

/* ---- from higher ranks ---- */
static void inbound_drop(linking *k, inbound *g) {
  if (g->fd >= 0) close(g->fd);
  *g = k->inbounds[--k->n_inbound];
}

/* False: the inbound connection is gone. */
static bool inbound_serve(linking *k, inbound *g, short events, int64_t now) {
  aci_mesh *m = k->m;
  bool ok = now <= g->until;
  if (ok && events != 0) {
    const ssize_t n = recv(g->fd, (char *)&g->said + g->got, sizeof g->said - g->got, 0);
    ok = n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
    if (n > 0) g->got += (size_t)n;
  }
  if (ok && g->got < sizeof g->said) return true;
  const int from = g->said.from;
  if (ok && from > m->rank && from < m->size && is_right(k, &g->said, from)) {
    const hello h = introduce(k, from);
    if (send(g->fd, &h, sizeof h, MSG_NOSIGNAL) == (ssize_t)sizeof h) {
      aci_mesh_adopt(m, from, g->fd);
      g->fd = -1;
    }
  }
  inbound_drop(k, g);
  return false;
}

static void accept_all(linking *k, int64_t now) {
  for (int fd; k->n_inbound < MOST_INBOUND &&
               (fd = accept4(k->m->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
    k->inbounds[k->n_inbound] = (inbound){.fd = fd, .until = now + INBOUND_MS * (int64_t)MS};
    aci_socket_tune(fd);
    k->n_inbound++;
  }
}

/* ---- all ---- */
/* Ranks that are not linked yet; *first: the lowest. */
static int count_missing(const linking *k, int *first) {
  int n = 0;
  for (int r = k->m->size - 1; r >= 0; r--) {
    if (r == k->m->rank || k->m->peers[r].fd >= 0) continue;
    *first = r;
    n++;
  }
  return n;
}

static void poll_once(linking *k, int64_t now) {
  aci_mesh *m = k->m;
  int n = 0;
  k->polls[n++] =
      (struct pollfd){.fd = m->listener, .events = (short)(k->n_inbound < MOST_INBOUND ? POLLIN : 0)};
  for (int i = 0; i < k->n_inbound; i++)
    k->polls[n++] = (struct pollfd){.fd = k->inbounds[i].fd, .events = POLLIN};
  const int first_dial = n;
  for (int i = 0; i < k->n_dials; i++) {
    dial *d = &k->dials[i];
    if (m->peers[d->rank].fd < 0 && d->fd < 0 && now >= d->until) dial_begin(k, d, now);
    k->polls[n++] = (struct pollfd){.fd = d->fd, .events = (short)(d->connected ? POLLIN : POLLOUT)};
  }
  if (poll(k->polls, (nfds_t)n, POLL_MS) < 0) return;
  now = aci_now_ns();
  for (int i = 0; i < k->n_dials; i++)
    if (k->dials[i].fd >= 0) dial_serve(k, &k->dials[i], k->polls[first_dial + i].revents, now);
  /* backwards: the last one takes the place of one that goes */
  for (int i = k->n_inbound - 1; i >= 0; i--) inbound_serve(k, &k->inbounds[i], k->polls[1 + i].revents, now);
  if (m->listener >= 0) accept_all(k, now);
}

static ac_status gave_up(linking *k, int first, int n, ac_err *e) {
  const aci_mesh *m = k->m;
  char name[80];
  aci_peer_name(m, first, name, sizeof name);
  if (first < m->rank) {
    const char *why = "";
    for (int i = 0; i < k->n_dials; i++)
      if (k->dials[i].rank == first) why = k->dials[i].why;
    return aci_stop(m->world, AC_PEER, first, e,
                    "rank %d cannot reach %s at %s; let machines reach each other on all ports, or choose "
                    "another interface by "
                    "--main_process_ip",
                    m->rank, name, why);
  }
  return aci_stop(m->world, AC_PEER, first, e,
                  "%s%s did not connect to rank %d; let machines reach each other on all ports", name,
                  n > 1 ? " and others" : "", m->rank);
}

static ac_status link_all(linking *k, ac_err *e) {
  const aci_mesh *m = k->m;
  const int64_t limit = atomic_load(&m->world->timeout_ns), most = LIMIT_MS * (int64_t)MS;
  const int64_t until = aci_now_ns() + (limit < most ? limit : most);
  for (int first = -1;;) {
    const int n = count_missing(k, &first);
    if (n == 0) return AC_OK;
    const int64_t now = aci_now_ns();
    if (now > until) return gave_up(k, first, n, e);
    poll_once(k, now);
    AC_TRY(aci_mesh_check(k->m, -1, 0, e));
  }
}

ac_status aci_mesh_connect(aci_mesh *m, const aci_peer_info *infos, ac_err *e) {
  memcpy(m->infos, infos, (size_t)m->size * sizeof *infos);
  /* all ranks compare the same infos in the same order, so that all find the same difference */
  for (int r = 0; r < m->size; r++) {
    bool foreign;
    char text[400];
    aci_peer_info *c = &m->infos[r];
    ac_status st = aci_peer_info_check(&m->infos[0], c, &foreign, text, sizeof text);
    if (st == AC_OK && c->rank != r) {
      st = AC_MISMATCH;
      snprintf(text, sizeof text, "rank %d says that it is rank %d", r, (int)c->rank);
    }
    if (st != AC_OK) return aci_stop(m->world, st, -1, e, "%s", text);
  }
  linking *k = calloc(1, sizeof *k);
  ac_status st = AC_OK;
  if (k != NULL) {
    k->m = m;
    k->token = m->infos[0].token;
    k->dials = calloc((size_t)m->rank + 1, sizeof *k->dials);
    k->polls = calloc((size_t)m->rank + MOST_INBOUND + 2, sizeof *k->polls);
  }
  if (k == NULL || k->dials == NULL || k->polls == NULL)
    st = AC_FAIL(e, OOM, "no memory to link %d ranks", m->size);
  /* connections of the rendezvous are links already */
  for (int r = 0; r < m->rank && st == AC_OK; r++)
    if (m->peers[r].fd < 0) k->dials[k->n_dials++] = (dial){.rank = r, .fd = -1};
  if (st == AC_OK) st = link_all(k, e);
  if (k != NULL) {
    for (int i = 0; i < k->n_dials; i++)
      if (k->dials[i].fd >= 0) close(k->dials[i].fd);
    while (k->n_inbound > 0) inbound_drop(k, &k->inbounds[0]);
    free(k->dials);
    free(k->polls);
    free(k);
  }
  /* nobody connects any more; what was accepted without a right hello was dropped above */
  if (m->listener >= 0) close(m->listener);
  m->listener = -1;
  return st;
}
