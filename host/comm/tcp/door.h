/* A listener that lets in peers which have proved who they are: accepts, runs the handshake within
 * the limits of a gate, and hands over authenticated connections. Used by serve.c (rendezvous) and
 * connect.c (links). One thread. */
#ifndef ACI_COMM_DOOR_H
#define ACI_COMM_DOOR_H
#include <poll.h>

#include "base/gate.h"
#include "comm/tcp/auth.h"
#include "comm/tcp/mesh_impl.h"

enum { ACI_DOOR_POLLS = ACI_GATE_MOST + 1 };

typedef struct aci_visitor {
  int fd;
  char from[ACI_ADDRESS];
  aci_auth auth;
} aci_visitor;

typedef struct aci_door {
  const aci_mesh *m;
  aci_auth_purpose purpose;
  const uint8_t *token; /* NULL: zero */
  int listener;         /* borrowed. -1: no listener */
  char name[200];
  aci_gate gate;
  aci_visitor visitor[ACI_GATE_MOST];
} aci_door;

/* Takes over an authenticated socket: the rank that it proved to be, the size of the world that it
 * believes in. */
typedef void (*aci_door_admit)(void *user, int fd, int from, int world);

/* NULL: no memory. */
aci_door *aci_door_new(const aci_mesh *m, aci_auth_purpose purpose, const uint8_t *token,
                       int listener);
/* Fills p[ACI_DOOR_POLLS] with the descriptors to poll. Returns the number of entries. */
int aci_door_polls(const aci_door *d, struct pollfd *p);
/* After poll: serves incoming data, then accepts. */
void aci_door_serve(aci_door *d, aci_door_admit admit, void *user);
/* Closes connections that have not authenticated and logs their number. Frees d. NULL is fine. */
void aci_door_free(aci_door *d);

#endif
