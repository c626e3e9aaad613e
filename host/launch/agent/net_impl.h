/* Insides of the connections between agents, shared by net.c and seeds.c. */
#ifndef ACI_LAUNCH_NET_IMPL_H
#define ACI_LAUNCH_NET_IMPL_H
#include "launch/agent/net.h"

typedef struct aci_net_peer { /* an agent to dial */
  int seed;
  uint64_t uid; /* 0: not known yet */
  char address[ACI_ADDRESS], host[256];
  int port;
  int64_t next;   /* time of the next attempt, ns */
  int64_t met_at; /* its last HELLO, ns. 0: others told of it */
  bool known;
  aci_net_hello hello;
} aci_net_peer;

typedef struct aci_net_link {
  int fd, peer; /* peer: that was dialed, -1: it came */
  bool connected, open, known;
  uint64_t uid;
  int seed;
  int64_t heard_at; /* or began */
  aci_auth auth;
  unsigned char *in, *out;
  size_t n_in, at_out, n_out, room;
} aci_net_link;

struct aci_net {
  aci_mesh who; /* of which the door needs the key and the names */
  aci_door *door;
  int listener;
  aci_net_hello own;
  aci_net_take take;
  void *user;
  int n_seeds, n_peers, n_links;
  aci_net_peer peers[ACI_NET_PEERS];
  aci_net_link links[ACI_NET_LINKS];
  char refusal[300]; /* why the last one does not fit. "": the last one fits */
  int64_t refused_at;
};

/* ---- seeds.c ---- */
/* The first peers of n, from "HOST[:PORT],...". */
ac_status aci_net_take_seeds(aci_net *n, const char *seeds, ac_err *e);
/* At the first of them that is free on this machine, or else anywhere. */
ac_status aci_net_listen(aci_net *n, ac_err *e);
/* May these two be agents of one job? why: it differs in what all machines must have alike. */
bool aci_net_fits(const aci_net *n, const aci_net_hello *h, char *why, size_t size);

#endif
