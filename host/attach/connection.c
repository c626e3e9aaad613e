/* One client of the service: frames in and out, without ever waiting for it. Called by attach.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "attach/attach_impl.h"

bool aci_client_same_user(int fd) {
  struct ucred u;
  socklen_t n = sizeof u;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &u, &n) == 0 && n == sizeof u &&
         u.uid == geteuid();
}

bool aci_token_equal(const char *token, const char *given, size_t n) {
  unsigned char differ = n != ACI_TOKEN;
  for (size_t i = 0; i < ACI_TOKEN; i++)
    differ |= (unsigned char)(token[i] ^ (i < n ? given[i] : 0));
  return differ == 0;
}

/* The bytes that have arrived of k wanted ones. -1: the client is gone, 0: nothing now. */
static ssize_t take(const aci_client *c, void *p, size_t k) {
  for (;;) {
    const ssize_t n = recv(c->fd, p, k, MSG_DONTWAIT);
    if (n > 0) return n;
    if (n < 0 && errno == EINTR) continue;
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : -1;
  }
}

int aci_client_read(aci_client *c) {
  while (c->frame == NULL) {
    const ssize_t n = take(c, c->head + c->n, sizeof c->head - c->n);
    if (n <= 0) return (int)n;
    c->n += (uint32_t)n;
    if (c->n < sizeof c->head) continue;
    c->length = (uint32_t)c->head[0] | (uint32_t)c->head[1] << 8 | (uint32_t)c->head[2] << 16 |
                (uint32_t)c->head[3] << 24;
    /* who has not shown the token yet gets room for that and no more */
    if (c->length > (c->admitted ? AC_ATTACH_MAX_FRAME : ACI_UNPROVED_BYTES)) return -1;
    c->got = 0;
    c->frame = malloc((size_t)c->length + 1);
    if (c->frame == NULL) return -1;
  }
  while (c->got < c->length) {
    const ssize_t n = take(c, c->frame + c->got, c->length - c->got);
    if (n <= 0) return (int)n;
    c->got += (uint32_t)n;
  }
  c->frame[c->length] = 0;
  return 1;
}

void aci_client_next(aci_client *c) {
  free(c->frame);
  c->frame = NULL;
  c->n = 0;
}

bool aci_client_send(aci_client *c, const char *p, size_t n) {
  const unsigned char head[4] = {(unsigned char)n, (unsigned char)(n >> 8),
                                 (unsigned char)(n >> 16), (unsigned char)(n >> 24)};
  struct iovec v[2] = {{(void *)(uintptr_t)head, sizeof head}, {(void *)(uintptr_t)p, n}};
  struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
  const ssize_t k = sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
  /* a client that does not take a frame at once does not read */
  return k == (ssize_t)(n + sizeof head);
}

void aci_client_close(aci_client *c) {
  if (c->fd >= 0) close(c->fd);
  free(c->frame);
  *c = (aci_client){.fd = -1};
}
