/* Links every rank to every other: each connects to those below it, which listen. Both ends prove
 * that they know the key of the job and the world's token (auth.h), so a stranger on the port, or
 * an address that leads to another machine, is found out. Called once, by aci_mesh_connect. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/tcp/door.h"
#include "comm/wait.h"

enum { MS = 1000000, POLL_MS = 20, ATTEMPT_MS = 3000, AGAIN_MS = 100, LIMIT_MS = 30000 };

typedef struct dial {  /* to a lower rank */
  int rank, fd, which; /* which: of its addresses */
  bool connected;
  int64_t until; /* of this attempt. Without a socket: time of the next attempt */
  aci_auth auth;
  char why[160];
} dial;

typedef struct linking {
  aci_mesh *m;
  const uint8_t *token;
  dial *dials;
  int n_dials;
  aci_door *door;
  struct pollfd *polls;
} linking;

/* A peer may have left since: its socket is gone then, and it was linked all the same. */
static bool is_linked(const aci_mesh *m, int rank) { return m->peers[rank].state != ACI_ABSENT; }

/* ---- to lower ranks ---- */
static const char *address_of(const dial *d, const aci_peer_info *c) {
  return c->address[d->which];
}

static void dial_failed(linking *k, dial *d, const char *why, int64_t now) {
  const aci_peer_info *c = &k->m->infos[d->rank];
  char place[ACI_ADDRESS + 16];
  if (d->fd >= 0) close(d->fd);
  d->fd = -1;
  snprintf(d->why, sizeof d->why, "%s: %.64s",
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
  d->until = now + ATTEMPT_MS * (int64_t)MS;
  if (d->fd < 0) dial_failed(k, d, why, now);
}

/* NULL: it continues, or is linked. Otherwise the reason of the failure. */
static const char *dial_step(linking *k, dial *d) {
  const aci_mesh *m = k->m;
  size_t taken;
  if (!d->connected) {
    const int error = aci_socket_error(d->fd);
    if (error != 0) return strerror(error);
    d->connected = true;
    d->auth = (aci_auth){.key = m->key.insecure ? NULL : m->key.key,
                         .run_id = m->run_id,
                         .purpose = ACI_FOR_LINK,
                         .from = m->rank,
                         .to = d->rank,
                         .world = m->size};
    memcpy(d->auth.token, k->token, sizeof d->auth.token);
  }
  const aci_auth_state s = aci_auth_step(&d->auth, d->fd, &taken);
  if (s == ACI_AUTH_FAILED) return aci_auth_why(&d->auth);
  if (s == ACI_AUTH_MORE) return NULL;
  if (d->auth.generation != m->generation) return "it is of another attempt of this job";
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
static void admit(void *user, int fd, int from, int world) {
  linking *k = user;
  if (from > k->m->rank && from < k->m->size && world == k->m->size) aci_mesh_adopt(k->m, from, fd);
  else close(fd);
}

/* ---- all ---- */
/* Ranks that are not linked yet, *first: the lowest. */
static int count_missing(const linking *k, int *first) {
  int n = 0;
  for (int r = k->m->size - 1; r >= 0; r--) {
    if (r == k->m->rank || is_linked(k->m, r)) continue;
    *first = r;
    n++;
  }
  return n;
}

static void poll_once(linking *k, int64_t now) {
  aci_mesh *m = k->m;
  int n = aci_door_polls(k->door, k->polls);
  const int first_dial = n;
  for (int i = 0; i < k->n_dials; i++) {
    dial *d = &k->dials[i];
    if (!is_linked(m, d->rank) && d->fd < 0 && now >= d->until) dial_begin(k, d, now);
    k->polls[n++] =
        (struct pollfd){.fd = d->fd, .events = (short)(d->connected ? POLLIN : POLLOUT)};
  }
  if (poll(k->polls, (nfds_t)n, POLL_MS) < 0) return;
  now = aci_now_ns();
  for (int i = 0; i < k->n_dials; i++)
    if (k->dials[i].fd >= 0) dial_serve(k, &k->dials[i], k->polls[first_dial + i].revents, now);
  aci_door_serve(k->door, admit, k);
}

static ac_status gave_up(linking *k, int first, int n, ac_err *e) {
  const aci_mesh *m = k->m;
  char name[80];
  aci_peer_name(m, first, name, sizeof name);
  if (first < m->rank) {
    const char *why = "";
    for (int i = 0; i < k->n_dials; i++)
      if (k->dials[i].rank == first) why = k->dials[i].why;
    return aci_stop(
        m->world, AC_PEER, first, e,
        "rank %d cannot reach %s at %s; let machines reach each other on all ports, or choose "
        "another interface by "
        "--main_process_ip",
        m->rank, name, why);
  }
  return aci_stop(m->world, AC_PEER, first, e,
                  "%s%s did not connect to rank %d; let machines reach each other on all ports",
                  name, n > 1 ? " and others" : "", m->rank);
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
      snprintf(text, sizeof text, "rank %d claims to be rank %d", r, (int)c->rank);
    }
    if (st != AC_OK) return aci_stop(m->world, st, -1, e, "%s", text);
  }
  linking *k = calloc(1, sizeof *k);
  ac_status st = AC_OK;
  if (k != NULL) {
    k->m = m;
    k->token = m->infos[0].token;
    k->dials = calloc((size_t)m->rank + 1, sizeof *k->dials);
    k->polls = calloc((size_t)m->rank + ACI_DOOR_POLLS + 1, sizeof *k->polls);
    k->door = aci_door_new(m, ACI_FOR_LINK, k->token, m->listener);
  }
  if (k == NULL || k->dials == NULL || k->polls == NULL || k->door == NULL)
    st = AC_FAIL(e, OOM, "no memory to link %d ranks", m->size);
  /* connections of the rendezvous are links already */
  for (int r = 0; r < m->rank && st == AC_OK; r++)
    if (!is_linked(m, r)) k->dials[k->n_dials++] = (dial){.rank = r, .fd = -1};
  if (st == AC_OK) st = link_all(k, e);
  if (k != NULL) {
    for (int i = 0; i < k->n_dials; i++)
      if (k->dials[i].fd >= 0) close(k->dials[i].fd);
    aci_door_free(k->door);
    free(k->dials);
    free(k->polls);
    free(k);
  }
  /* nobody connects any more. The door has closed connections that did not authenticate */
  aci_forget(m->key.key, sizeof m->key.key); /* linked ranks need no proof */
  if (m->listener >= 0) close(m->listener);
  m->listener = -1;
  return st;
}
