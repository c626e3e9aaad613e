/* Connections between the agents of an elastic job. See net.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch/agent/net_impl.h"

#define MS ((int64_t)1000000)
enum {
  DIAL_MS = 1000,
  AGAIN_MS = 300,
  LATER_MS = 600,  /* the other agent of a pair dials first */
  STALE_MS = 3000, /* nothing came for so long: a new connection is tried */
  AUTH_MS = 5000,
  REFUSED_MS = 1000, /* others that fit may come */
  OUT_MOST = 4 << 20
};

typedef struct frame_head {
  uint32_t bytes;
  uint16_t type, zero;
} frame_head;

typedef struct book_body {
  uint64_t uid;
  int32_t port, zero;
  char address[ACI_ADDRESS];
} book_body;

typedef aci_net_peer peer;
typedef aci_net_link net_link;

/* ---- links ---- */
static net_link *add_link(aci_net *n, int fd, int of) {
  if (n->n_links == ACI_NET_LINKS) return NULL;
  net_link *k = &n->links[n->n_links];
  *k = (net_link){.fd = fd, .peer = of, .seed = -1, .heard_at = aci_now_ns()};
  k->in = malloc(sizeof(frame_head) + ACI_NET_FRAME);
  if (k->in == NULL) return NULL;
  n->n_links++;
  return k;
}

static void drop(net_link *k) {
  if (k->fd >= 0) close(k->fd);
  k->fd = -1;
}

static void sweep(aci_net *n) {
  for (int i = n->n_links - 1; i >= 0; i--) {
    net_link *k = &n->links[i];
    if (k->fd >= 0) continue;
    free(k->in);
    free(k->out);
    *k = n->links[--n->n_links];
  }
}

static void flush(net_link *k) {
  while (k->fd >= 0 && k->n_out > 0) {
    const ssize_t s = send(k->fd, k->out + k->at_out, k->n_out, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (s > 0) {
      k->at_out += (size_t)s;
      k->n_out -= (size_t)s;
    } else if (s == 0 || (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)) {
      drop(k);
    } else if (errno != EINTR) {
      return;
    }
  }
  k->at_out = 0;
}

static void put(net_link *k, aci_frame type, const void *body, size_t bytes) {
  const frame_head h = {.bytes = (uint32_t)bytes, .type = (uint16_t)type};
  const size_t need = k->n_out + sizeof h + bytes;
  if (k->fd < 0 || need > OUT_MOST) {
    drop(k);
    return;
  }
  if (k->at_out > 0) memmove(k->out, k->out + k->at_out, k->n_out);
  k->at_out = 0;
  if (need > k->room) {
    unsigned char *more = realloc(k->out, need * 2);
    if (more == NULL) {
      drop(k);
      return;
    }
    k->out = more;
    k->room = need * 2;
  }
  memcpy(k->out + k->n_out, &h, sizeof h);
  if (bytes > 0) memcpy(k->out + k->n_out + sizeof h, body, bytes);
  k->n_out = need;
  flush(k);
}

/* ---- who is where ---- */
static peer *peer_of(aci_net *n, uint64_t uid) {
  for (int i = 0; i < n->n_peers; i++)
    if (n->peers[i].uid == uid) return &n->peers[i];
  return NULL;
}

static bool is_linked(const aci_net *n, int i) {
  const peer *p = &n->peers[i];
  for (int k = 0; k < n->n_links; k++) {
    const net_link *l = &n->links[k];
    if (l->fd < 0) continue;
    if (l->peer == i ||
        (l->known && ((p->uid != 0 && l->uid == p->uid) || (p->seed >= 0 && l->seed == p->seed))))
      return true;
  }
  return false;
}

static void tell_place(net_link *k, const peer *p) {
  book_body b = {.uid = p->uid, .port = p->port};
  if (p->uid == 0 || p->address[0] == 0 || p->uid == k->uid) return;
  memcpy(b.address, p->address, sizeof b.address);
  put(k, ACI_FRAME_BOOK, &b, sizeof b);
}

static void take_place(aci_net *n, const void *body) {
  book_body given;
  const book_body *b = &given;
  memcpy(&given, body, sizeof given); /* it is not aligned */
  if (b->uid == n->own.uid || b->uid == 0 || peer_of(n, b->uid) != NULL ||
      n->n_peers == ACI_NET_PEERS)
    return;
  peer *p = &n->peers[n->n_peers++];
  *p = (peer){.seed = -1, .uid = b->uid, .port = b->port};
  memcpy(p->address, b->address, sizeof p->address);
  aci_text_clean(p->address, sizeof p->address);
  p->next = aci_now_ns() + (n->own.uid < b->uid ? 0 : LATER_MS * MS);
}

/* For an agent that is here. It takes the place of one that nobody was heard of for longest. NULL: all
 * of them are here. */
static peer *place_for(aci_net *n) {
  peer *oldest = NULL;
  if (n->n_peers < ACI_NET_PEERS) return &n->peers[n->n_peers++];
  for (int i = n->n_seeds; i < n->n_peers; i++)
    if (!is_linked(n, i) && (oldest == NULL || n->peers[i].met_at < oldest->met_at))
      oldest = &n->peers[i];
  return oldest;
}

/* It ends this agent if no other one fits within a moment. */
static void refuse(aci_net *n, const char *why) {
  if (strcmp(n->refusal, why) == 0) return;
  if (n->refusal[0] == 0) n->refused_at = aci_now_ns();
  snprintf(n->refusal, sizeof n->refusal, "%s", why);
}

static void take_hello(aci_net *n, net_link *k, const void *body) {
  aci_net_hello h;
  memcpy(&h, body, sizeof h); /* it is not aligned */
  if (memcmp(h.magic, n->own.magic, sizeof h.magic) != 0 || h.order != n->own.order ||
      h.protocol != n->own.protocol || h.uid == 0 || h.uid == n->own.uid) {
    drop(k);
    return;
  }
  aci_text_clean(h.host, sizeof h.host);
  aci_text_clean(h.version, sizeof h.version);
  aci_text_clean(h.seeds, sizeof h.seeds);
  char why[sizeof n->refusal];
  if (!aci_net_fits(n, &h, why, sizeof why)) {
    if (strcmp(n->refusal, why) != 0)
      ac_log_write(AC_LOG_WARN, "launch", "refused a machine: %s", why);
    refuse(n, why);
    drop(k);
    return;
  }
  k->known = true;
  n->refusal[0] = 0; /* this agent fits to some */
  k->uid = h.uid;
  k->seed = h.seed >= 0 && h.seed < n->n_seeds ? h.seed : -1;
  peer *p = k->seed >= 0 ? &n->peers[k->seed] : peer_of(n, h.uid);
  if (p == NULL) {
    if ((p = place_for(n)) == NULL) {
      drop(k);
      return;
    }
    *p = (peer){.seed = -1, .uid = h.uid, .port = h.port};
    if (k->peer < 0) aci_socket_address(k->fd, true, p->address, sizeof p->address);
    for (int i = 0; i < n->n_links; i++)
      if (n->links[i].known && &n->links[i] != k) tell_place(&n->links[i], p);
  }
  p->uid = h.uid; /* of a seed that restarted: the new one */
  p->hello = h;
  p->known = true;
  p->met_at = aci_now_ns();
  for (int i = n->n_seeds; i < n->n_peers; i++) tell_place(k, &n->peers[i]);
}

/* ---- incoming data ---- */
static void take_frame(aci_net *n, net_link *k, const frame_head *h, const void *body) {
  if (h->type == ACI_FRAME_HELLO && h->bytes == sizeof(aci_net_hello)) take_hello(n, k, body);
  else if (!k->known) drop(k);
  else if (h->type == ACI_FRAME_BOOK && h->bytes == sizeof(book_body)) take_place(n, body);
  else n->take(n->user, k->uid, (aci_frame)h->type, body, h->bytes);
}

static void read_frames(aci_net *n, net_link *k) {
  frame_head h;
  while (k->fd >= 0) {
    const ssize_t s =
        recv(k->fd, k->in + k->n_in, sizeof h + ACI_NET_FRAME - k->n_in, MSG_DONTWAIT);
    if (s < 0 && errno == EINTR) continue;
    if (s < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (s <= 0) {
      drop(k);
      return;
    }
    k->heard_at = aci_now_ns();
    k->n_in += (size_t)s;
    size_t at = 0;
    while (k->fd >= 0 && k->n_in - at >= sizeof h) {
      memcpy(&h, k->in + at, sizeof h);
      if (h.bytes > ACI_NET_FRAME) {
        drop(k);
        return;
      }
      if (k->n_in - at < sizeof h + h.bytes) break;
      take_frame(n, k, &h, k->in + at + sizeof h);
      at += sizeof h + h.bytes;
    }
    memmove(k->in, k->in + at, k->n_in - at);
    k->n_in -= at;
  }
}

static void is_open(aci_net *n, net_link *k) {
  aci_socket_tune(k->fd);
  k->open = true;
  k->heard_at = aci_now_ns();
  put(k, ACI_FRAME_HELLO, &n->own, sizeof n->own);
}

static void admit(void *user, int fd, int from, int world) {
  aci_net *n = user;
  net_link *k = from == 0 && world == 0 ? add_link(n, fd, -1) : NULL;
  if (k == NULL) close(fd);
  else is_open(n, k);
}

/* ---- dialing ---- */
static void dial(aci_net *n, int i, int64_t now) {
  peer *p = &n->peers[i];
  char why[64];
  p->next = now + AGAIN_MS * MS;
  if (p->address[0] == 0) return;
  const int fd = aci_socket_dial(p->address, p->port, why, sizeof why);
  if (fd >= 0 && add_link(n, fd, i) == NULL) close(fd);
}

static void step(aci_net *n, net_link *k, int64_t now) {
  struct pollfd p = {.fd = k->fd, .events = POLLOUT};
  size_t taken;
  if (!k->connected && k->peer >= 0) {
    if (poll(&p, 1, 0) <= 0) {
      if (now - k->heard_at > DIAL_MS * MS) drop(k);
      return;
    }
    if (aci_socket_error(k->fd) != 0) {
      drop(k);
      return;
    }
    k->connected = true;
    k->heard_at = now;
    k->auth = (aci_auth){.key = n->who.key.key, .run_id = n->who.run_id, .purpose = ACI_FOR_AGENT};
  }
  if (!k->open) {
    const aci_auth_state s = aci_auth_step(&k->auth, k->fd, &taken);
    if (s == ACI_AUTH_DONE) is_open(n, k);
    else if (s == ACI_AUTH_FAILED || now - k->heard_at > AUTH_MS * MS) {
      if (s == ACI_AUTH_FAILED && k->auth.fault == ACI_AUTH_REFUSED) {
        char why[sizeof n->refusal];
        snprintf(why, sizeof why,
                 "%s:%d %s; give all machines the same secret (ACCEL_JOB_SECRET, "
                 "--job-secret-file)",
                 n->peers[k->peer].address, n->peers[k->peer].port, aci_auth_why(&k->auth));
        refuse(n, why);
      }
      drop(k);
      return;
    }
  }
  if (!k->open) return;
  read_frames(n, k);
  flush(k);
  if (k->fd >= 0 && now - k->heard_at > STALE_MS * MS) drop(k);
}

void aci_net_serve(aci_net *n) {
  const int64_t now = aci_now_ns();
  aci_door_serve(n->door, admit, n);
  for (int i = 0; i < n->n_peers; i++)
    if (i != n->own.seed && now >= n->peers[i].next && !is_linked(n, i)) dial(n, i, now);
  for (int i = 0; i < n->n_links; i++)
    if (n->links[i].fd >= 0) step(n, &n->links[i], now);
  sweep(n);
}

int aci_net_polls(const aci_net *n, struct pollfd *p) {
  int count = aci_door_polls(n->door, p);
  for (int i = 0; i < n->n_links; i++) {
    const net_link *k = &n->links[i];
    const bool connecting = k->peer >= 0 && !k->connected;
    p[count++] = (struct pollfd){
        .fd = k->fd,
        .events = (short)(connecting ? POLLOUT : POLLIN | (k->n_out > 0 ? POLLOUT : 0))};
  }
  return count;
}

/* ---- for the agent ---- */
static net_link *link_to(aci_net *n, uint64_t uid, int seed) {
  net_link *best = NULL;
  for (int i = 0; i < n->n_links; i++) {
    net_link *k = &n->links[i];
    if (k->fd < 0 || !k->known || (seed >= 0 ? k->seed != seed : k->uid != uid)) continue;
    if (best == NULL || k->heard_at > best->heard_at) best = k;
  }
  return best;
}

void aci_net_send(aci_net *n, uint64_t uid, int seed, aci_frame type, const void *body,
                  size_t bytes) {
  net_link *k = link_to(n, uid, seed);
  if (k != NULL) put(k, type, body, bytes);
}

void aci_net_tell_all(aci_net *n, aci_frame type, const void *body, size_t bytes) {
  for (int i = 0; i < n->n_peers; i++) {
    net_link *k = n->peers[i].uid != 0 ? link_to(n, n->peers[i].uid, -1) : NULL;
    if (k != NULL) put(k, type, body, bytes);
  }
}

const aci_net_hello *aci_net_who(const aci_net *n, uint64_t uid) {
  if (uid == n->own.uid) return &n->own;
  for (int i = 0; i < n->n_peers; i++)
    if (n->peers[i].known && n->peers[i].uid == uid) return &n->peers[i].hello;
  return NULL;
}

bool aci_net_hears(const aci_net *n, uint64_t uid) {
  for (int i = 0; i < n->n_links; i++)
    if (n->links[i].fd >= 0 && n->links[i].known && n->links[i].uid == uid) return true;
  return false;
}

int aci_net_seeds(const aci_net *n) { return n->n_seeds; }
const char *aci_net_seed_host(const aci_net *n, int i) { return n->peers[i].host; }
const char *aci_net_refusal(const aci_net *n) {
  for (int i = 0; i < n->n_links; i++)
    if (n->links[i].fd >= 0 && n->links[i].known) return "";
  return n->refusal[0] != 0 && aci_now_ns() - n->refused_at > REFUSED_MS * MS ? n->refusal : "";
}

/* ---- the beginning ---- */
ac_status aci_net_open(const char *seeds, const aci_job_key *key, const char *run_id,
                       aci_net_hello *own, aci_net_take take, void *user, aci_net **out,
                       ac_err *e) {
  aci_net *n = calloc(1, sizeof *n);
  if (n == NULL) return AC_FAIL(e, OOM, "no memory for links to other machines");
  n->listener = -1;
  n->take = take;
  n->user = user;
  n->who.key = *key;
  snprintf(n->who.run_id, sizeof n->who.run_id, "%s", run_id);
  n->own = *own;
  memcpy(n->own.magic, "accelag1", sizeof n->own.magic);
  n->own.order = 0x01020304;
  n->own.protocol = 1;
  snprintf(n->own.seeds, sizeof n->own.seeds, "%.255s", seeds);
  ac_status st = aci_net_take_seeds(n, seeds, e);
  if (st == AC_OK) st = aci_net_listen(n, e);
  if (st == AC_OK && (n->door = aci_door_new(&n->who, ACI_FOR_AGENT, NULL, n->listener)) == NULL)
    st = AC_FAIL(e, OOM, "no memory for links to other machines");
  if (st != AC_OK) {
    aci_net_close(n);
    return st;
  }
  *own = n->own;
  *out = n;
  return AC_OK;
}

void aci_net_close(aci_net *n) {
  if (n == NULL) return;
  for (int i = 0; i < n->n_links; i++) drop(&n->links[i]);
  sweep(n);
  aci_door_free(n->door);
  if (n->listener >= 0) close(n->listener);
  aci_forget(&n->who.key, sizeof n->who.key);
  free(n);
}
