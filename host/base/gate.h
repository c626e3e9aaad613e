/* The limits for connections that have not authenticated: how many, how many of one source, for how
 * long, with how many bytes. Every listener of accel uses them: the rendezvous and the links of
 * ranks, attach, the page of accel-run ui.
 *
 * A gate keeps a place for each connection that has not authenticated yet. The caller owns the
 * connections and stores each of them under the number of its place. A newcomer always gets a
 * place: if there is none left, the place of the connection that has sent the fewest bytes and,
 * among these, has waited longest. A source that uses up its share only displaces its own
 * connections. So a flood of silent connections cannot keep a peer out that answers at once.
 *
 * Not thread-safe: one thread serves a listener. */
#ifndef ACI_GATE_H
#define ACI_GATE_H
#include <sys/socket.h>

#include "accel/base.h"

enum { ACI_GATE_MOST = 256 };

typedef struct aci_gate_limits {
  int most, of_source; /* places, at most ACI_GATE_MOST. Places of one source */
  int64_t ns;          /* until it must have authenticated */
  size_t bytes;        /* that it may send before that */
  /* for which nothing displaces it, so that a peer that answers at once gets through a flood */
  int64_t grace_ns;
} aci_gate_limits;

typedef struct aci_gate_place {
  bool taken, trusted; /* trusted: it has authenticated, and keeps its place for a moment */
  uint64_t source;
  int64_t until;
  size_t bytes;
} aci_gate_place;

typedef struct aci_gate {
  const char *area; /* of the log: "comm", "attach" */
  const char *what; /* "rank 0 at 10.0.0.1:29500": begins the report */
  aci_gate_limits limits;
  uint64_t closed; /* connections that ended without authenticating */
  bool reported;
  aci_gate_place place[ACI_GATE_MOST];
} aci_gate;

/* area and what must live as long as the gate. */
void aci_gate_init(aci_gate *g, const char *area, const char *what, const aci_gate_limits *limits);
/* The source of a connection: equal for equal IPv4 addresses, and for IPv6 addresses of one network
 * of 64 bits. */
uint64_t aci_gate_source(const struct sockaddr *a);
/* The place of a newcomer. *displaces: a connection has it. The caller ends that one with
 * aci_gate_refuse first. Then aci_gate_enter. -1: every place belongs to a trusted connection, or
 * to one within its grace. */
int aci_gate_find(const aci_gate *g, uint64_t source, int64_t now, bool *displaces);
void aci_gate_enter(aci_gate *g, int place, uint64_t source, int64_t now);
/* Counts bytes that came. False: too many. */
bool aci_gate_take(aci_gate *g, int place, size_t bytes);
bool aci_gate_late(const aci_gate *g, int place, int64_t now);
/* It has authenticated: nothing displaces it. It still has to leave. */
void aci_gate_trust(aci_gate *g, int place);
void aci_gate_leave(aci_gate *g, int place);
/* Removes a connection that has not authenticated. It is counted, and the first one is reported
 * with `why` and its source. what_to_do may be "". */
void aci_gate_refuse(aci_gate *g, int place, const char *from, const char *why,
                     const char *what_to_do);

#endif
