/* How ranks of several machines find each other: rank 0 listens at the address that all were given, the
 * others come and show their infos, and get those of all. Shared by rendezvous.c (who comes) and serve.c
 * (rank 0).
 *
 * Wire: the newcomer sends RV_MAGIC and its info; the answer is a head, then `size` infos or a line that
 * says why not. */
#ifndef ACI_COMM_RENDEZVOUS_H
#define ACI_COMM_RENDEZVOUS_H
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

/* Numeric addresses of a name; 0: none, *why says it. */
int aci_resolve(const char *name, char (*out)[ACI_ADDRESS], int max, bool *may_change, char *why, size_t n);
ac_status aci_rendezvous_serve(aci_mesh *m, aci_peer_info *infos, ac_err *e); /* rank 0 */

/* ns that ranks wait for each other to come. */
static inline int64_t aci_rendezvous_limit(const aci_mesh *m) {
  return m->world->join_ns > 0 ? m->world->join_ns : atomic_load(&m->world->timeout_ns);
}

#endif
