/* Connections between the agents of an elastic job: the accel-run processes of its machines. Each
 * agent dials the seed addresses, and every agent that it hears of, so that all of them reach each
 * other. Used by agent.c, from one thread. Nothing here blocks.
 *
 * A connection begins with the handshake of comm/tcp/auth.h by the key of the job, and then a HELLO
 * each way. What follows are frames: a head and a body, in the byte order of the machine, which HELLO
 * compares. TCP keeps their order, and a stranger cannot enter an authenticated connection without
 * being on its path, which the key does not protect against between ranks either (use WireGuard or
 * IPsec there). */
#ifndef ACI_LAUNCH_NET_H
#define ACI_LAUNCH_NET_H
#include <poll.h>

#include "comm/tcp/door.h"

enum {
  ACI_NET_SEEDS = 16,
  ACI_NET_PEERS = 512, /* agents that it knows, also some that are gone */
  ACI_NET_LINKS = 1024,
  ACI_NET_POLLS = ACI_NET_LINKS + ACI_DOOR_POLLS,
  ACI_NET_FRAME = 64 << 10 /* most bytes of a body */
};

typedef enum aci_frame {
  ACI_FRAME_HELLO = 1,
  ACI_FRAME_BOOK,   /* where another agent listens */
  ACI_FRAME_MEMBER, /* a message of the membership core */
  ACI_FRAME_LOST,   /* a line about ranks that the sender lost */
  ACI_FRAME_FAIL,   /* the job ends: the rank to blame, a line */
  ACI_FRAME_DONE    /* all ranks of the sender have finished */
} aci_frame;

typedef struct aci_net_hello {
  char magic[8]; /* "accelag1" */
  uint32_t order, protocol;
  uint64_t uid;
  int32_t seed, port; /* its place in the list of seeds, -1: none. Where it listens */
  int32_t rank_port;  /* where rank 0 will listen if it runs there */
  int32_t ranks, min, max;
  char host[40], version[24], seeds[256]; /* the whole list */
} aci_net_hello;

typedef struct aci_net aci_net;
/* from: the uid of the sender. body is valid during the call. */
typedef void (*aci_net_take)(void *user, uint64_t from, aci_frame type, const void *body, size_t n);

/* seeds: "HOST[:PORT],...". Listens at the first of them that is free on this machine, which makes it
 * that seed, or else anywhere. Fills own->seed, port and seeds. key, run_id: of the job, copied. */
ac_status aci_net_open(const char *seeds, const aci_job_key *key, const char *run_id,
                       aci_net_hello *own, aci_net_take take, void *user, aci_net **out, ac_err *e);
void aci_net_close(aci_net *n); /* NULL is fine */
/* Fills p[ACI_NET_POLLS]. Returns the number of entries. */
int aci_net_polls(const aci_net *n, struct pollfd *p);
void aci_net_serve(aci_net *n);
/* To the agent with this uid, or that listens at seed i (seed: i, else -1). Without a connection
 * nothing happens: what matters is sent again. */
void aci_net_send(aci_net *n, uint64_t uid, int seed, aci_frame type, const void *body,
                  size_t bytes);
void aci_net_tell_all(aci_net *n, aci_frame type, const void *body, size_t bytes);
/* What an agent said of itself. NULL: it is not known. */
const aci_net_hello *aci_net_who(const aci_net *n, uint64_t uid);
/* Whether bytes of this agent came lately. */
bool aci_net_hears(const aci_net *n, uint64_t uid);
int aci_net_seeds(const aci_net *n);
/* The host of seed i, as it was given. */
const char *aci_net_seed_host(const aci_net *n, int i);
/* Why another agent does not fit to this one, if none fits. "": there is no reason to give up. */
const char *aci_net_refusal(const aci_net *n);

#endif
