/* The wrapper of libzmq. See zmq.h. */
#include "attach/zmq.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/library.h"

#ifdef ACCEL_HAVE_ZMQ
#include <zmq.h>

#define FUNCTIONS(X) \
  X(zmq_ctx_new)     \
  X(zmq_ctx_term)    \
  X(zmq_socket)      \
  X(zmq_close)       \
  X(zmq_bind)        \
  X(zmq_connect)     \
  X(zmq_setsockopt)  \
  X(zmq_send)        \
  X(zmq_msg_init)    \
  X(zmq_msg_recv)    \
  X(zmq_msg_data)    \
  X(zmq_msg_size)    \
  X(zmq_msg_more) X(zmq_msg_close) X(zmq_poll) X(zmq_errno) X(zmq_strerror)

static struct {
#define X(name) __typeof__(name) *name;
  FUNCTIONS(X)
#undef X
} lib;                  /* process-wide, like the library: written once by load, read after that */
static ac_err unusable; /* why, if its code is set */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) {
#define X(name) {#name, &lib.name},
  const aci_symbol symbols[] = {FUNCTIONS(X)};
#undef X
  (void)aci_library_open("zmq", symbols, sizeof symbols / sizeof *symbols, &unusable);
}

enum { LINGER_MS = 1000, WAITS = 512 };
static const int64_t part_max = 64 << 20;

struct aci_zmq {
  void *context;
  int references;
};

struct aci_zmq_socket {
  aci_zmq *z;
  void *socket;
  zmq_msg_t message; /* the last received part */
};

ac_status aci_zmq_open(aci_zmq **out, ac_err *e) {
  pthread_once(&once, load);
  if (unusable.code != AC_OK) {
    if (e != NULL) *e = unusable;
    return unusable.code;
  }
  aci_zmq *z = calloc(1, sizeof *z);
  if (z == NULL) return AC_FAIL(e, OOM, "no memory for a context of ZeroMQ");
  z->context = lib.zmq_ctx_new();
  z->references = 1;
  if (z->context == NULL) {
    free(z);
    return AC_FAIL(e, IO, "ZeroMQ does not start: %s", lib.zmq_strerror(lib.zmq_errno()));
  }
  *out = z;
  return AC_OK;
}

void aci_zmq_release(aci_zmq *z) {
  if (z == NULL || --z->references > 0) return;
  while (lib.zmq_ctx_term(z->context) != 0 && lib.zmq_errno() == EINTR) continue;
  free(z);
}

static int type_of(const char *kind) {
  static const struct {
    const char *name;
    int type;
  } kinds[] = {{"router", ZMQ_ROUTER}, {"dealer", ZMQ_DEALER}, {"pub", ZMQ_PUB},
               {"sub", ZMQ_SUB},       {"rep", ZMQ_REP},       {"req", ZMQ_REQ}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(kinds[i].name, kind) == 0) return kinds[i].type;
  return -1;
}

ac_status aci_zmq_socket_open(aci_zmq *z, const char *kind, const char *address,
                              const char *connects_as, aci_zmq_socket **out, ac_err *e) {
  const int type = type_of(kind), linger = LINGER_MS, unlimited = 0, yes = 1;
  if (type < 0) return AC_FAIL(e, INVALID, "ZeroMQ: no kind of socket '%s'", kind);
  aci_zmq_socket *s = calloc(1, sizeof *s);
  if (s == NULL) return AC_FAIL(e, OOM, "no memory for a socket of ZeroMQ");
  s->socket = lib.zmq_socket(z->context, type);
  if (s->socket == NULL) {
    free(s);
    return AC_FAIL(e, IO, "ZeroMQ: no socket: %s", lib.zmq_strerror(lib.zmq_errno()));
  }
  lib.zmq_msg_init(&s->message);
  s->z = z;
  z->references++;
  lib.zmq_setsockopt(s->socket, ZMQ_LINGER, &linger, sizeof linger);
  lib.zmq_setsockopt(s->socket, ZMQ_SNDHWM, &unlimited, sizeof unlimited);
  lib.zmq_setsockopt(s->socket, ZMQ_RCVHWM, &unlimited, sizeof unlimited);
  lib.zmq_setsockopt(s->socket, ZMQ_MAXMSGSIZE, &part_max, sizeof part_max);
  if (type == ZMQ_ROUTER) /* a client that connects again under its name gets its answers */
    lib.zmq_setsockopt(s->socket, ZMQ_ROUTER_HANDOVER, &yes, sizeof yes);
  if (type == ZMQ_SUB) lib.zmq_setsockopt(s->socket, ZMQ_SUBSCRIBE, "", 0);
  const bool connects = connects_as != NULL;
  if (connects && connects_as[0] != 0)
    lib.zmq_setsockopt(s->socket, ZMQ_ROUTING_ID, connects_as, strlen(connects_as));
  if ((connects ? lib.zmq_connect(s->socket, address) : lib.zmq_bind(s->socket, address)) != 0) {
    AC_FAIL(e, IO, "ZeroMQ: cannot %s %s: %s", connects ? "connect to" : "listen at", address,
            lib.zmq_strerror(lib.zmq_errno()));
    aci_zmq_socket_close(s);
    return AC_IO;
  }
  *out = s;
  return AC_OK;
}

void aci_zmq_socket_close(aci_zmq_socket *s) {
  if (s == NULL) return;
  lib.zmq_msg_close(&s->message);
  lib.zmq_close(s->socket);
  aci_zmq_release(s->z);
  free(s);
}

ac_status aci_zmq_send(aci_zmq_socket *s, const void *p, size_t n, bool more, ac_err *e) {
  int k;
  do k = lib.zmq_send(s->socket, p, n, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0));
  while (k < 0 && lib.zmq_errno() == EINTR);
  if (k >= 0) return AC_OK;
  return AC_FAIL(e, IO, "ZeroMQ: cannot send: %s", lib.zmq_strerror(lib.zmq_errno()));
}

ac_status aci_zmq_receive(aci_zmq_socket *s, const void **p, size_t *n, bool *more, ac_err *e) {
  int k;
  do k = lib.zmq_msg_recv(&s->message, s->socket, ZMQ_DONTWAIT);
  while (k < 0 && lib.zmq_errno() == EINTR);
  *p = NULL;
  *n = 0;
  *more = false;
  if (k < 0 && lib.zmq_errno() == EAGAIN) return AC_OK;
  if (k < 0) return AC_FAIL(e, IO, "ZeroMQ: cannot receive: %s", lib.zmq_strerror(lib.zmq_errno()));
  *p = lib.zmq_msg_data(&s->message);
  *n = lib.zmq_msg_size(&s->message);
  *more = lib.zmq_msg_more(&s->message) != 0;
  return AC_OK;
}

ac_status aci_zmq_wait_for(aci_zmq *z, aci_zmq_wait *list, int n, int ms, ac_err *e) {
  zmq_pollitem_t items[WAITS];
  (void)z;
  if (n > WAITS) return AC_FAIL(e, INVALID, "ZeroMQ: %d things to wait for, %d at most", n, WAITS);
  for (int i = 0; i < n; i++)
    items[i] = (zmq_pollitem_t){.socket = list[i].socket != NULL ? list[i].socket->socket : NULL,
                                .fd = list[i].fd,
                                .events = ZMQ_POLLIN};
  const int k = lib.zmq_poll(items, n, ms);
  if (k < 0 && lib.zmq_errno() != EINTR)
    return AC_FAIL(e, IO, "ZeroMQ: cannot wait: %s", lib.zmq_strerror(lib.zmq_errno()));
  for (int i = 0; i < n; i++) list[i].ready = k > 0 && items[i].revents != 0;
  return AC_OK;
}

#else

ac_status aci_zmq_open(aci_zmq **out, ac_err *e) { return (void)out, aci_library_absent("zmq", e); }
void aci_zmq_release(aci_zmq *z) { (void)z; }
ac_status aci_zmq_socket_open(aci_zmq *z, const char *kind, const char *address,
                              const char *connects_as, aci_zmq_socket **out, ac_err *e) {
  (void)z, (void)kind, (void)address, (void)connects_as, (void)out;
  return aci_library_absent("zmq", e);
}
void aci_zmq_socket_close(aci_zmq_socket *s) { (void)s; }
ac_status aci_zmq_send(aci_zmq_socket *s, const void *p, size_t n, bool more, ac_err *e) {
  (void)s, (void)p, (void)n, (void)more;
  return aci_library_absent("zmq", e);
}
ac_status aci_zmq_receive(aci_zmq_socket *s, const void **p, size_t *n, bool *more, ac_err *e) {
  (void)s, (void)p, (void)n, (void)more;
  return aci_library_absent("zmq", e);
}
ac_status aci_zmq_wait_for(aci_zmq *z, aci_zmq_wait *list, int n, int ms, ac_err *e) {
  (void)z, (void)list, (void)n, (void)ms;
  return aci_library_absent("zmq", e);
}
#endif
