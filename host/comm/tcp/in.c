/* Incoming data of a link. Messages are checked like any outside data. DATA goes straight to the
 * place that was requested. The mesh's lock is held throughout. Only the waiting thread reads.
 * Called by the other files of the mesh. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "comm/tcp/mesh_impl.h"

enum { TURN = 4 << 20, MOST_PENDING_DESCS = 4096 };

void aci_text_clean(char *text, size_t n) {
  text[n - 1] = 0;
  for (; *text != 0; text++)
    if ((unsigned char)*text < ' ' || *text == 127) *text = '?';
}

void aci_peer_dies(aci_mesh *m, int rank, const char *why) {
  aci_peer *p = &m->peers[rank];
  p->broken = true;
  if (p->fd >= 0) shutdown(p->fd, SHUT_RDWR); /* closed by the thread that polls it */
  if (p->state != ACI_RUNNING) return;
  p->state = ACI_DEAD;
  p->died = aci_now_ns();
  if (why != p->why) snprintf(p->why, sizeof p->why, "%s", why);
}

bool aci_in_may_read(const aci_peer *p) { return p->fd >= 0 && p->kept < ACI_UNEXPECTED_MOST; }

/* ---- messages ---- */
static size_t kept_bytes(const aci_transfer *t) {
  return t->total < ACI_EAGER ? (size_t)t->total : ACI_EAGER;
}

static void drop_kept(aci_peer *p, aci_transfer *t) {
  if (t->kept == NULL) return;
  p->kept -= kept_bytes(t);
  free(t->kept);
  t->kept = NULL;
}

static void forget(aci_peer *p, aci_transfer *t) {
  if (p->receiving == t) p->receiving = NULL;
  drop_kept(p, t);
  aci_list_remove(&p->incoming, t);
  free(t);
}

static void grant(aci_mesh *m, int rank, aci_transfer *t) {
  if (t->total <= ACI_EAGER || t->other_size) return;
  t->granted = true;
  aci_out_control(m, rank, &(aci_message){.type = ACI_MSG_GRANT, .number = t->number}, NULL);
}

/* All of it has come. A message whose size differs from the request stays, for progress to
 * report. */
static void finish_if_whole(aci_peer *p, aci_transfer *t) {
  if (t->at < t->total || !t->wanted || (t->other_size && t->move != NULL)) return;
  if (t->move != NULL) {
    t->move->over = true;
    t->move->impl = NULL;
  }
  forget(p, t);
}

static void pair(aci_transfer *t, aci_request *v) {
  t->move = v;
  t->wanted = true;
  t->other_size = t->total != v->bytes;
  v->impl = t;
}

void aci_in_match(aci_mesh *m, int rank, aci_transfer *asked) {
  aci_peer *p = &m->peers[rank];
  aci_transfer *t = p->incoming.first;
  while (t != NULL && (t->wanted || t->channel != asked->channel)) t = t->next;
  if (t == NULL) {
    aci_list_add(&p->posted, asked);
    return;
  }
  pair(t, asked->move);
  free(asked);
  if (!t->other_size) {
    if (t->at > 0) memcpy(t->move->ptr, t->kept, (size_t)t->at);
    t->move->done = (size_t)t->at;
  }
  drop_kept(p, t);
  grant(m, rank, t);
  finish_if_whole(p, t);
}

void aci_in_cancel(aci_mesh *m, int rank, aci_transfer *t) {
  aci_peer *p = &m->peers[rank];
  t->move = NULL;
  if (!t->wanted) { /* still in the list of those that wait for a message */
    aci_list_remove(&p->posted, t);
    free(t);
    return;
  }
  finish_if_whole(p, t); /* otherwise the rest is read and dropped */
}

static bool begin_transfer(aci_mesh *m, int rank, const aci_message *f) {
  aci_peer *p = &m->peers[rank];
  if (f->total > (uint64_t)INT64_MAX || f->bytes != (f->total < ACI_EAGER ? f->total : ACI_EAGER))
    return false;
  aci_transfer *t = p->posted.first;
  while (t != NULL && t->channel != f->channel) t = t->next;
  if (t != NULL) {
    aci_list_remove(&p->posted, t);
    t->total = f->total;
    pair(t, t->move);
  } else {
    t = calloc(1, sizeof *t);
    if (t == NULL || (t->kept = malloc(f->bytes + 1)) == NULL) {
      free(t);
      aci_peer_dies(m, rank, "this rank has no memory for messages from it");
      return true;
    }
    t->channel = f->channel;
    t->total = f->total;
    p->kept += f->bytes;
  }
  t->number = f->number;
  aci_list_add(&p->incoming, t);
  p->receiving = t;
  if (t->wanted) grant(m, rank, t);
  return true;
}

static bool begin_data(aci_mesh *m, int rank, const aci_message *f) {
  aci_peer *p = &m->peers[rank];
  if (f->first) {
    if (!begin_transfer(m, rank, f)) return false;
  } else {
    aci_transfer *t = p->incoming.first;
    while (t != NULL && t->number != f->number) t = t->next;
    if (t == NULL || !t->granted || t->total != f->total || f->bytes == 0 ||
        f->bytes > ACI_DATA_MOST || f->bytes > t->total - t->at)
      return false;
    p->receiving = t;
  }
  p->body_wanted = f->bytes;
  if (f->bytes == 0 && p->receiving != NULL) finish_if_whole(p, p->receiving);
  return true;
}

/* ---- control messages ---- */
static bool take_desc(aci_mesh *m, int rank, const void *body) {
  aci_peer *p = &m->peers[rank];
  aci_pending_desc *s = malloc(sizeof *s), **end = &p->descs;
  if (s == NULL || p->n_descs >= MOST_PENDING_DESCS) {
    free(s);
    return false;
  }
  memcpy(&s->desc, body, sizeof s->desc);
  aci_text_clean(s->desc.site, sizeof s->desc.site);
  if (s->desc.site[0] != 0) memcpy(p->last_site, s->desc.site, sizeof p->last_site);
  s->next = NULL;
  while (*end != NULL) end = &(*end)->next;
  *end = s;
  p->n_descs++;
  return true;
}

static bool take_control(aci_mesh *m, int rank, const aci_message *f, const void *body) {
  aci_peer *p = &m->peers[rank];
  switch (f->type) {
    case ACI_MSG_DESC: return f->bytes == sizeof(aci_desc) && take_desc(m, rank, body);
    case ACI_MSG_GRANT:
      for (aci_transfer *t = p->sends.first; t != NULL; t = t->next)
        if (t->number == f->number) t->granted = true;
      return true;
    case ACI_MSG_WAIT:
      if (f->bytes != sizeof p->wait) return false;
      memcpy(&p->wait, body, sizeof p->wait);
      aci_text_clean(p->wait.want.site, sizeof p->wait.want.site);
      return p->wait.n <= ACI_WAIT_RANKS;
    case ACI_MSG_LEAVE:
      if (f->bytes >= sizeof p->why) return false;
      p->state = ACI_LEFT;
      if (f->bytes > 0) memcpy(p->why, body, f->bytes);
      p->why[f->bytes] = 0;
      aci_text_clean(p->why, sizeof p->why);
      return true;
    case ACI_MSG_ABORT:
      if (f->bytes != sizeof m->abort_reason) return false;
      p->state = ACI_FAILED; /* its end is expected */
      if (m->has_abort) return true;
      memcpy(&m->abort_reason, body, sizeof m->abort_reason);
      aci_text_clean(m->abort_reason.text, sizeof m->abort_reason.text);
      if (m->abort_reason.rank < -1 || m->abort_reason.rank >= m->size) m->abort_reason.rank = -1;
      m->has_abort = true;
      return true;
    case ACI_MSG_RESET:
      p->reset = true;
      if (f->total > p->generation) {
        p->generation = f->total;
        aci_peer_clear(p);
      }
      return f->bytes == 0;
    default: return false;
  }
}

/* Takes one message's head, and its body unless that is data. False: more has to come first. */
static bool take_message(aci_mesh *m, int rank) {
  aci_peer *p = &m->peers[rank];
  aci_message f;
  if (p->stage_bytes < sizeof f) return false;
  memcpy(&f, p->stage + p->stage_at, sizeof f);
  const bool data = f.type == ACI_MSG_DATA;
  bool ok = data || f.bytes <= ACI_CONTROL_MOST;
  const size_t size = sizeof f + (data || !ok ? 0 : f.bytes);
  if (ok && p->stage_bytes < size) return false;
  if (ok)
    ok = data ? begin_data(m, rank, &f)
              : take_control(m, rank, &f, p->stage + p->stage_at + sizeof f);
  p->stage_at += size;
  p->stage_bytes -= size;
  if (!ok) aci_peer_dies(m, rank, "sent data that violates the protocol");
  return true;
}

/* ---- bytes ---- */
/* The place for the next bytes of the message. NULL: nowhere. */
static unsigned char *destination(const aci_transfer *t) {
  if (t == NULL) return NULL;
  if (!t->wanted) return t->kept + t->at;
  return t->move != NULL && !t->other_size ? (unsigned char *)t->move->ptr + t->at : NULL;
}

static void arrived(aci_peer *p, size_t n) {
  aci_transfer *t = p->receiving;
  p->body_wanted -= n;
  if (t == NULL) return;
  t->at += n;
  if (t->move != NULL) t->move->done = (size_t)t->at;
  if (p->body_wanted > 0) return;
  p->receiving = NULL;
  finish_if_whole(p, t);
}

static void take_staged(aci_peer *p) {
  const size_t n = p->stage_bytes < p->body_wanted ? p->stage_bytes : p->body_wanted;
  unsigned char *to = destination(p->receiving);
  if (to != NULL) memcpy(to, p->stage + p->stage_at, n);
  p->stage_at += n;
  p->stage_bytes -= n;
  arrived(p, n);
}

/* One call of the kernel. The rest of a message's data goes to its place, later bytes to the
 * stage. */
static ssize_t receive(aci_peer *p, unsigned char *nowhere, size_t nowhere_bytes) {
  struct iovec v[2];
  size_t n = 0, direct = 0;
  if (p->stage_bytes == 0) p->stage_at = 0;
  if (p->body_wanted > 0) {
    unsigned char *to = destination(p->receiving);
    direct = to != NULL || p->body_wanted < nowhere_bytes ? p->body_wanted : nowhere_bytes;
    v[n++] = (struct iovec){to != NULL ? to : nowhere, direct};
  } else if (p->stage_at > 0) {
    memmove(p->stage, p->stage + p->stage_at, p->stage_bytes);
    p->stage_at = 0;
  }
  if (direct == p->body_wanted)
    v[n++] = (struct iovec){p->stage + p->stage_bytes, sizeof p->stage - p->stage_bytes};
  struct msghdr msg = {.msg_iov = v, .msg_iovlen = n};
  const ssize_t k = recvmsg(p->fd, &msg, MSG_DONTWAIT);
  if (k <= 0) return k;
  const size_t to_body = (size_t)k < direct ? (size_t)k : direct;
  p->stage_bytes += (size_t)k - to_body;
  if (to_body > 0) arrived(p, to_body);
  return k;
}

bool aci_in_read(aci_mesh *m, int rank) {
  aci_peer *p = &m->peers[rank];
  /* data of transfers that were cancelled is read into nowhere, to keep the stream in step */
  unsigned char nowhere[4096];
  bool any = false;
  size_t budget = TURN;
  while (aci_in_may_read(p)) {
    if (p->state == ACI_DEAD) {
      close(p->fd);
      p->fd = -1;
      return true;
    }
    if (p->stage_bytes > 0 && p->body_wanted > 0) {
      take_staged(p);
      continue;
    }
    if (p->body_wanted == 0 && take_message(m, rank)) continue;
    /* one busy peer must not keep the others from being read */
    if (budget == 0) return true;
    const ssize_t k = receive(p, nowhere, sizeof nowhere);
    if (k > 0) {
      any = true;
      budget -= (size_t)k < budget ? (size_t)k : budget;
    } else if (k == 0) {
      aci_peer_dies(m, rank,
                    p->why[0] != 0 ? p->why : "its connection was closed without a leave notice");
      close(p->fd);
      p->fd = -1;
      return true;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return any;
    } else if (errno != EINTR) {
      aci_peer_dies(m, rank, strerror(errno));
    }
  }
  return any;
}

void aci_descs_drop(aci_peer *p) {
  for (aci_pending_desc *s; (s = p->descs) != NULL;) {
    p->descs = s->next;
    free(s);
  }
}

void aci_peer_fini(aci_peer *p) {
  if (p->fd >= 0) close(p->fd);
  p->fd = -1;
  free(p->control);
  free(p->orphan);
  aci_list_drop(&p->sends);
  aci_list_drop(&p->posted);
  aci_list_drop(&p->incoming);
  aci_descs_drop(p);
}
