/* Declarations shared by the files of the sim backend. */
#ifndef ACI_COMM_SIM_H
#define ACI_COMM_SIM_H
#include "comm/comm_impl.h"

/* dst[i] = the reduction of `copies` values equal to src[i]. dst may be src. MEAN, MIN, MAX, and
 * all of bool: src itself. */
void aci_sim_copies(ac_dtype dt, ac_reduce_op op, int64_t copies, const void *src, void *dst,
                    int64_t n);
/* Bytes that this rank would send if the collective ran by the usual bandwidth-optimal algorithms:
 *   all_reduce           ring: 2 (P-1)/P of the buffer
 *   reduce_scatter       ring: all parts but its own
 *   all_gather           ring: all parts but the next rank's
 *   broadcast, reduce    chain from (to) the root: the buffer, except at the chain's last rank
 *   gather, scatter      direct: its part to the root, the root's other parts
 *   all_to_all           direct: all parts but its own
 *   send                 the buffer */
uint64_t aci_sim_bytes(const ac_group *g, const ac_coll *c);

#endif
