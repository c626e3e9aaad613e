/* A socket to every other rank of the world. Beside the data it carries descriptors, aborts and
 * leave notices, so that a mismatch, a rank that left and a dead rank are known at once. The tcp
 * backend moves everything through it, mpi uses it as its host channel.
 *
 *   aci_mesh_open     this rank listens and fills its info
 *   (infos are exchanged: by rendezvous.c, or by MPI_Allgather as plain bytes)
 *   aci_mesh_connect  links to all others, blocks
 *   ...
 *   aci_mesh_close    sends the leave notice
 *
 * One thread at a time calls the rest. aci_mesh_abort may be called by any thread at any time. */
#ifndef ACI_COMM_MESH_H
#define ACI_COMM_MESH_H
#include "comm/link/link.h"

typedef struct aci_mesh aci_mesh;

enum { ACI_MESH_ADDRESSES = 4, ACI_ADDRESS = 64 };

/* A rank's information for the others: plain bytes of fixed layout, without padding. */
typedef struct aci_peer_info {
  char magic[8];  /* "accelcd1" */
  uint32_t order; /* 0x01020304, to tell byte orders apart */
  uint32_t protocol;
  int32_t rank, size, local_rank, machine;
  int32_t pid, port;    /* port 0: does not listen */
  uint64_t script_hash; /* 0: not known */
  uint8_t token[16];    /* random. Rank 0's is the world's */
  char version[24], host[40], run_id[ACI_RUN_ID], script[104];
  /* numeric. The first that leads to this rank is used. "" in the first: the address at which rank
   * 0 was reached */
  char address[ACI_MESH_ADDRESSES][ACI_ADDRESS];
} aci_peer_info;
_Static_assert(sizeof(aci_peer_info) == 552, "no padding");

/* Listens and fills *info. address: numeric, the only one to listen at. NULL: the loopback if all
 * ranks are on this machine, otherwise every interface. w must live until the mesh is closed. */
ac_status aci_mesh_open(ac_world *w, const char *address, aci_mesh **out, aci_peer_info *info,
                        ac_err *e);
/* The key that ranks prove to each other, for a backend that hands it over by itself. Before
 * aci_mesh_connect. NULL: --insecure. */
void aci_mesh_set_key(aci_mesh *m, const uint8_t key[32]);
/* Links to all others. infos[size] in rank order, the same on all ranks. MISMATCH if versions,
 * sizes or scripts differ. PEER or TIMEOUT names the unreachable ranks. Serves aborts. After an
 * error: aci_mesh_close. */
ac_status aci_mesh_connect(aci_mesh *m, const aci_peer_info *infos, ac_err *e);
/* Notifies peers that this rank leaves (site: the script line, NULL: unknown), unless it was
 * aborted. Waits briefly until they have the notice, then frees. NULL is fine. */
void aci_mesh_close(aci_mesh *m, const char *site);

/* exchange_descs of a link. */
ac_status aci_mesh_exchange_descs(aci_mesh *m, ac_group *g, const aci_desc *d, aci_desc *all,
                                  ac_err *e);
/* Looks at the sockets for at most wait_ms, for backends that wait elsewhere: call it every few
 * milliseconds. An error when a peer died, failed, gave an abort, or when `need` (a global rank,
 * -1: none) has left. Data that `need` sent before it left by another way may still be on its way
 * then: a backend must wait for a moment before it concludes that nothing comes. */
ac_status aci_mesh_check(aci_mesh *m, int need, int wait_ms, ac_err *e);
/* ---- host_channel.c: for a backend that moves its data elsewhere (mpi) ---- */
/* progress is called again and again while the mesh waits. */
void aci_mesh_set_progress(aci_mesh *m, void (*progress)(void));
/* Sends the leave notice alone, before this rank waits for the others to leave. The sockets stay
 * open, aci_mesh_check still reports ranks that died or failed, and aci_mesh_close does not send it
 * again. */
void aci_mesh_send_leave(aci_mesh *m, const char *site);
/* Nothing new will come of this transfer: the peer left, or is in a collective that this rank has
 * not reached. Data already on its way may still come. */
bool aci_mesh_cannot_complete(aci_mesh *m, const aci_request *v);
/* Ends the job for that reason. */
ac_status aci_mesh_fail_transfer(aci_mesh *m, const aci_request *v, ac_err *e);

/* Any thread: notifies all peers once, wakes this rank's waits. */
void aci_mesh_abort(aci_mesh *m, ac_status code, int rank, const char *text);

/* After an abort, on all ranks, which have nothing under way: the links are as new. PEER,
 * TIMEOUT. */
ac_status aci_mesh_reset(aci_mesh *m, ac_err *e);

/* generation.c: a generation of an elastic job begins. Nothing is under way on any of its ranks, and
 * the world has its new members. Links to others are closed, the links to members are as new.
 * MEMBERSHIP: a further rank was lost meanwhile. */
ac_status aci_mesh_reform(aci_mesh *m, ac_err *e);

/* Names of the machines on which there are other ranks than this one's: "a,b". */
void aci_mesh_hosts(const aci_mesh *m, char *buf, size_t n);

/* start, progress, cancel of a link. */
ac_status aci_mesh_start(aci_mesh *m, aci_request *v, ac_err *e);
ac_status aci_mesh_progress(aci_mesh *m, aci_request *const *v, int n, int wait_ms, ac_err *e);
void aci_mesh_cancel(aci_mesh *m, aci_request *v);

#endif
