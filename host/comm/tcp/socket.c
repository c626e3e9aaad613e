/* Sockets of the mesh and the rendezvous: made, tuned, named, watched. Addresses are numeric here.
 * rendezvous.c resolves names.
 *
 * TCP_USER_TIMEOUT is not used: it also ends connections to a peer that lives but does not read for
 * a while (busy, or stopped in a debugger), since answers to window probes do not reset it.
 * aci_socket_is_unresponsive asks the kernel instead whether the other end still answers at all.
 * Idle connections are watched by keepalive. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/tcp/mesh_impl.h"

enum { IDLE_S = 1, PROBES = 2, UNRESPONSIVE_MS = 1500 };

void aci_socket_tune(int fd) {
  const int one = 1, idle = IDLE_S, count = PROBES;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

void aci_socket_keep(int fd) {
  const int zero = 0;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &zero, sizeof zero);
}

/* A numeric address, or all interfaces. */
static bool parse(const char *address, int port, struct sockaddr_storage *out, socklen_t *len) {
  char service[12];
  struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                           .ai_socktype = SOCK_STREAM},
                  *r = NULL;
  snprintf(service, sizeof service, "%d", port);
  if (getaddrinfo(address, service, &hints, &r) != 0 || r == NULL) return false;
  memcpy(out, r->ai_addr, r->ai_addrlen);
  *len = r->ai_addrlen;
  freeaddrinfo(r);
  return true;
}

static int make(const struct sockaddr_storage *a) {
  return socket(a->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/* Every interface by both families if the kernel has them. */
static int listen_all(int port) {
  const int zero = 0, one = 1;
  int fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd >= 0) {
    struct sockaddr_in6 a = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = IN6ADDR_ANY_INIT};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero) == 0 &&
        bind(fd, (struct sockaddr *)&a, sizeof a) == 0)
      return fd;
    const int why = errno;
    close(fd);
    if (why == EADDRINUSE || why == EACCES) {
      errno = why;
      return -1;
    }
  }
  fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  struct sockaddr_in a = {.sin_family = AF_INET,
                          .sin_port = htons((uint16_t)port),
                          .sin_addr.s_addr = htonl(INADDR_ANY)};
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(fd, (struct sockaddr *)&a, sizeof a) == 0) return fd;
  const int why = errno;
  close(fd);
  errno = why;
  return -1;
}

int aci_socket_listen(const char *address, int port, int *got_port, char *why, size_t n) {
  struct sockaddr_storage a;
  socklen_t len = sizeof a;
  const int one = 1;
  int fd = -1;
  if (address == NULL) {
    fd = listen_all(port);
  } else if (!parse(address, port, &a, &len)) {
    snprintf(why, n, "'%s' is not an address", address);
    return -1;
  } else if ((fd = make(&a)) >= 0) {
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&a, len) != 0) {
      const int reason = errno;
      close(fd);
      errno = reason;
      fd = -1;
    }
  }
  if (fd >= 0 && listen(fd, SOMAXCONN) == 0) {
    len = sizeof a;
    if (got_port != NULL && getsockname(fd, (struct sockaddr *)&a, &len) == 0)
      *got_port = ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                                : ((struct sockaddr_in *)&a)->sin_port);
    return fd;
  }
  const int reason = errno;
  if (fd >= 0) close(fd);
  snprintf(why, n, "%s", strerror(reason));
  errno = reason;
  return -1;
}

int aci_socket_dial(const char *address, int port, char *why, size_t n) {
  struct sockaddr_storage a;
  socklen_t len = sizeof a;
  if (!parse(address, port, &a, &len)) {
    snprintf(why, n, "'%s' is not an address", address);
    errno = EINVAL;
    return -1;
  }
  int fd = make(&a);
  if (fd >= 0 && (connect(fd, (struct sockaddr *)&a, len) == 0 || errno == EINPROGRESS)) return fd;
  const int reason = errno;
  if (fd >= 0) close(fd);
  snprintf(why, n, "%s", strerror(reason));
  errno = reason;
  return -1;
}

int aci_socket_error(int fd) {
  int error = 0;
  socklen_t len = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 ? error : errno;
}

void aci_socket_address(int fd, bool of_peer, char *buf, size_t n) {
  struct sockaddr_storage a;
  socklen_t len = sizeof a;
  buf[0] = 0;
  if ((of_peer ? getpeername(fd, (struct sockaddr *)&a, &len)
               : getsockname(fd, (struct sockaddr *)&a, &len)) != 0)
    return;
  const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&a;
  if (a.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
    inet_ntop(AF_INET, &six->sin6_addr.s6_addr[12], buf, (socklen_t)n);
    return;
  }
  if (getnameinfo((struct sockaddr *)&a, len, buf, (socklen_t)n, NULL, 0, NI_NUMERICHOST) != 0)
    buf[0] = 0;
}

bool aci_address_is_loopback(const char *numeric) {
  return strncmp(numeric, "127.", 4) == 0 || strcmp(numeric, "::1") == 0;
}

int aci_addresses_here(char (*out)[ACI_ADDRESS], int max) {
  struct ifaddrs *all = NULL;
  int n = 0;
  if (getifaddrs(&all) != 0) return 0;
  static const int families[] = {AF_INET, AF_INET6};
  for (int f = 0; f < 2; f++) {
    for (const struct ifaddrs *i = all; i != NULL && n < max; i = i->ifa_next) {
      if (i->ifa_addr == NULL || i->ifa_addr->sa_family != families[f]) continue;
      if ((i->ifa_flags & (IFF_UP | IFF_LOOPBACK)) != IFF_UP) continue;
      const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)i->ifa_addr;
      if (f == 1 && IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)) continue; /* means nothing elsewhere */
      const socklen_t len = f == 0 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
      if (getnameinfo(i->ifa_addr, len, out[n], ACI_ADDRESS, NULL, 0, NI_NUMERICHOST) == 0) n++;
    }
  }
  freeifaddrs(all);
  return n;
}

const char *aci_endpoint_text(const char *address, int port, char *buf, size_t n) {
  snprintf(buf, n, strchr(address, ':') != NULL ? "[%s]:%d" : "%s:%d", address, port);
  return buf;
}

bool aci_socket_is_unresponsive(int fd) {
  struct tcp_info i;
  socklen_t len = sizeof i;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &len) != 0 ||
      len < offsetof(struct tcp_info, tcpi_pmtu))
    return false;
  return (i.tcpi_retransmits > 0 || i.tcpi_probes > 0) && i.tcpi_last_ack_recv > UNRESPONSIVE_MS;
}
