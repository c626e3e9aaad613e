/* Outgoing data of a link: control messages first, then messages in pieces. The mesh's lock is held
 * throughout. Called by the other files of the mesh. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "comm/tcp/mesh_impl.h"

void aci_list_add(aci_list *l, aci_transfer *t) {
  t->next = NULL;
  if (l->last != NULL) l->last->next = t;
  else l->first = t;
  l->last = t;
}

void aci_list_remove(aci_list *l, aci_transfer *t) {
  aci_transfer *before = NULL;
  for (aci_transfer *i = l->first; i != NULL; before = i, i = i->next) {
    if (i != t) continue;
    if (before != NULL) before->next = t->next;
    else l->first = t->next;
    if (l->last == t) l->last = before;
    return;
  }
}

void aci_list_drop(aci_list *l) {
  for (aci_transfer *t; (t = l->first) != NULL;) {
    l->first = t->next;
    if (t->move != NULL) t->move->impl = NULL;
    free(t->kept);
    free(t);
  }
  *l = (aci_list){0};
}

static bool may_go_on(const aci_transfer *t) {
  return !t->begun || (t->granted && t->at < t->total);
}

bool aci_out_waits(const aci_peer *p) {
  if (p->fd < 0 || p->broken) return false;
  if (p->control_bytes > 0 || p->sending != NULL || p->orphan != NULL) return true;
  for (const aci_transfer *t = p->sends.first; t != NULL; t = t->next)
    if (may_go_on(t)) return true;
  return false;
}

void aci_out_control(aci_mesh *m, int rank, const aci_message *f, const void *body) {
  aci_peer *p = &m->peers[rank];
  if (p->fd < 0 || p->broken) return;
  const size_t need = p->control_bytes + sizeof *f + f->bytes;
  if (p->control_at > 0 && p->control_at + need > p->control_room) {
    memmove(p->control, p->control + p->control_at, p->control_bytes);
    p->control_at = 0;
  }
  if (p->control_at + need > p->control_room) {
    const size_t room = need * 2;
    unsigned char *q = realloc(p->control, room);
    if (q == NULL) {
      aci_peer_dies(m, rank, "this rank has no memory for messages to it");
      return;
    }
    p->control = q;
    p->control_room = room;
  }
  unsigned char *at = p->control + p->control_at + p->control_bytes;
  memcpy(at, f, sizeof *f);
  if (f->bytes > 0) memcpy(at + sizeof *f, body, f->bytes);
  p->control_bytes += sizeof *f + f->bytes;
}

/* Begins the next DATA message. Messages begin in order, so that receivers can pair them up.
 * Granted messages continue in between. */
static bool next_message(aci_peer *p) {
  aci_transfer *t = p->sends.first;
  while (t != NULL && t->begun) t = t->next;
  if (t == NULL)
    for (t = p->sends.first; t != NULL && !may_go_on(t); t = t->next) {
    }
  if (t == NULL) return false;
  const size_t left = (size_t)(t->total - t->at), most = t->begun ? ACI_DATA_MOST : ACI_EAGER;
  p->body_left = left < most ? left : most;
  p->head = (aci_message){.type = ACI_MSG_DATA,
                          .first = !t->begun,
                          .number = t->number,
                          .channel = t->channel,
                          .total = t->total,
                          .bytes = (uint32_t)p->body_left};
  p->head_at = 0;
  p->body = (const unsigned char *)t->move->ptr + t->at;
  p->sending = t;
  return true;
}

static void message_is_out(aci_peer *p) {
  aci_transfer *t = p->sending;
  free(p->orphan);
  p->orphan = NULL;
  p->sending = NULL;
  p->head_at = 0;
  if (t == NULL) return;
  t->begun = true;
  t->at += p->head.bytes;
  t->move->done = (size_t)t->at;
  if (t->at < t->total) return;
  t->move->over = true;
  t->move->impl = NULL;
  aci_list_remove(&p->sends, t);
  free(t);
}

static size_t gone(size_t *n, size_t most) {
  const size_t k = *n < most ? *n : most;
  *n -= k;
  return k;
}

/* Counts n bytes that the socket took. control_first: the control messages stood before the DATA
 * message. */
static void account(aci_peer *p, size_t n, bool control_first) {
  for (int turn = 0; turn < 2; turn++) {
    if ((turn == 0) == control_first) {
      const size_t k = gone(&n, p->control_bytes);
      p->control_at += k;
      p->control_bytes -= k;
      if (p->control_bytes == 0) p->control_at = 0;
    } else if (p->sending != NULL || p->orphan != NULL) {
      p->head_at += gone(&n, sizeof p->head - p->head_at);
      const size_t k = gone(&n, p->body_left);
      p->body += k;
      p->body_left -= k;
      if (p->head_at == sizeof p->head && p->body_left == 0) message_is_out(p);
    }
  }
}

void aci_out_flush(aci_mesh *m, int rank) {
  aci_peer *p = &m->peers[rank];
  p->full = false;
  while (p->fd >= 0 && !p->broken) {
    const bool under_way = p->orphan != NULL || (p->sending != NULL && p->head_at > 0),
               control_first = !under_way;
    if (!under_way && p->sending == NULL) next_message(p);
    const bool has_message = p->sending != NULL || p->orphan != NULL;
    struct iovec v[3];
    size_t n = 0;
    for (int turn = 0; turn < 2; turn++) {
      if ((turn == 0) == control_first) {
        if (p->control_bytes > 0)
          v[n++] = (struct iovec){p->control + p->control_at, p->control_bytes};
      } else if (has_message) {
        if (p->head_at < sizeof p->head)
          v[n++] = (struct iovec){(char *)&p->head + p->head_at, sizeof p->head - p->head_at};
        if (p->body_left > 0) v[n++] = (struct iovec){(void *)(uintptr_t)p->body, p->body_left};
      }
    }
    if (n == 0) return;
    const struct msghdr msg = {.msg_iov = v, .msg_iovlen = n};
    const ssize_t k = sendmsg(p->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (k > 0) {
      account(p, (size_t)k, control_first);
    } else if (k < 0 &&
               (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM)) {
      p->full = true;
      return;
    } else if (k == 0 || errno != EINTR) {
      p->broken = true; /* it counts as dead once its earlier data has been read */
      if (p->state == ACI_RUNNING && errno != EPIPE)
        snprintf(p->why, sizeof p->why, "%s", strerror(errno));
    }
  }
}

void aci_out_cancel(aci_mesh *m, int rank, aci_transfer *t) {
  aci_peer *p = &m->peers[rank];
  aci_list_remove(&p->sends, t);
  if (p->sending == t) {
    p->sending = NULL;
    if (p->head_at == 0) {
      p->body_left = 0;
    } else {
      /* the stream needs the rest of the message. The receiver waits for a message that never ends,
       * as after every abort */
      p->orphan = malloc(p->body_left + 1);
      if (p->orphan == NULL) p->broken = true;
      else if (p->body_left > 0) memcpy(p->orphan, p->body, p->body_left);
      p->body = p->orphan;
    }
  }
  free(t);
}
