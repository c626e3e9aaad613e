/* ZeroMQ for notebooks: sockets that carry messages of several parts, and one wait for them and for
 * other descriptors. The only wrapper of libzmq, which is loaded on first use. Called by
 * bindings/attach/lac_zmq.c, for lua/jupyter.
 *
 * A context and its sockets belong to one thread. Sends never wait: each socket queues without a
 * limit, and a peer that is gone loses its messages. A received part has at most 64 MiB. */
#ifndef ACI_ATTACH_ZMQ_H
#define ACI_ATTACH_ZMQ_H
#include "accel/base.h"

typedef struct aci_zmq aci_zmq;
typedef struct aci_zmq_socket aci_zmq_socket;

/* One reference. UNSUPPORTED without the library. */
ac_status aci_zmq_open(aci_zmq **out, ac_err *e);
void aci_zmq_release(aci_zmq *z);

/* kind: router dealer pub sub rep req. Binds to the address (connects_as is
 * NULL), or connects to it, under this name if it is not "". Keeps z. INVALID: the
 * kind is unknown. IO: the address is in use or malformed. */
ac_status aci_zmq_socket_open(aci_zmq *z, const char *kind, const char *address,
                              const char *connects_as, aci_zmq_socket **out, ac_err *e);
/* Messages that are under way have a second to leave. */
void aci_zmq_socket_close(aci_zmq_socket *s);

/* One part of a message. more: others follow. */
ac_status aci_zmq_send(aci_zmq_socket *s, const void *p, size_t n, bool more, ac_err *e);
/* The next part that has arrived, or *p = NULL. *p is valid until the next call. */
ac_status aci_zmq_receive(aci_zmq_socket *s, const void **p, size_t *n, bool *more, ac_err *e);

typedef struct aci_zmq_wait {
  aci_zmq_socket *socket; /* NULL: fd */
  int fd;
  bool ready; /* out: something can be read, or the other end of fd is gone */
} aci_zmq_wait;
/* Until one is ready, ms are over (-1: no limit), or a signal arrives. */
ac_status aci_zmq_wait_for(aci_zmq *z, aci_zmq_wait *list, int n, int ms, ac_err *e);

#endif
