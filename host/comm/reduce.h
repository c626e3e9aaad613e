/* Reductions of n buffers into one value per element, by the fixed pairwise tree ((s0 + s1) + (s2 +
 * s3)) + ... Every backend uses this arithmetic. 16-bit floats are combined in f32 and rounded
 * once. Called by shm/ and link/. */
#ifndef ACI_COMM_REDUCE_H
#define ACI_COMM_REDUCE_H
#include "accel/comm.h"

/* For i in 0..count-1: the reduction of src[0..n-1][i], divided by n for MEAN, is stored in
 * dst[0..n_dst-1][i]. A dst may be one of the srcs, at the same place. streamed: stores go around
 * the caches. */
void aci_reduce(ac_dtype dt, ac_reduce_op op, int n, const void *const *src, int n_dst,
                void *const *dst, int64_t count, bool streamed);

#endif
