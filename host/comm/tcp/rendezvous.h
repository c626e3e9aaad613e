/* How ranks of several machines find each other. Rank 0 listens at the address that all were given.
 * The others connect, show their infos, and get the infos of all. Shared by rendezvous.c (the other
 * ranks) and serve.c (rank 0).
 *
 * Wire: after the handshake (auth.h) the newcomer sends RV_MAGIC and its info. The answer is a
 * head, then `size` infos or a line with the reason of a refusal. */
#ifndef ACI_COMM_RENDEZVOUS_H
#define ACI_COMM_RENDEZVOUS_H
#include "comm/tcp/auth.h"
#include "comm/tcp/mesh_impl.h"

#define ACI_RV_MAGIC "accelrv1"
enum { ACI_RV_TABLE = 1, ACI_RV_REFUSED = 2, ACI_RV_TEXT = 512, ACI_RV_ADDRESSES = 8 };

typedef struct aci_rv_hello {
  char magic[8];
  aci_peer_info info;
} aci_rv_hello;

typedef struct aci_rv_head {
  char magic[8];
  uint32_t kind, bytes;
  int32_t code, zero; /* of REFUSED: ac_status */
} aci_rv_head;

/* Numeric addresses of a name. 0: none, *why has the reason. */
int aci_resolve(const char *name, char (*out)[ACI_ADDRESS], int max, bool *may_change, char *why,
                size_t n);
/* Whether ranks must listen on all interfaces because the address of rank 0 was found to be the
 * loopback. Only if several machines use a host name that /etc/hosts of this one maps to the
 * loopback: others find another address. */
bool aci_listens_everywhere(const aci_place *p, const char *found);
ac_status aci_rendezvous_serve(aci_mesh *m, aci_peer_info *infos, ac_err *e); /* rank 0 */

/* ns that ranks wait for each other to come. */
static inline int64_t aci_rendezvous_limit(const aci_mesh *m) {
  return m->world->join_ns > 0 ? m->world->join_ns : atomic_load(&m->world->timeout_ns);
}

#endif
