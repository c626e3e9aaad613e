/* Pieces moved whole: y[o1, o2, ...] := x[m1(o1), m2(o2), ...] with one map per dim, given as runs.
 * Called by flip, roll, tile, repeat_interleave, pad and interpolate. It works on bytes, so it
 * serves every dtype. */
#ifndef ACI_OPS_REMAP_H
#define ACI_OPS_REMAP_H
#include "ops/index/index.h"
#include "ops/index/remap_plan.h"

/* The identity on elements that lie so, with `lead` new dims of extent 1 in front. */
void aci_remap_init(aci_remap *m, int ndim, const int64_t *shape, const int64_t *stride, int lead);
/* Adds count positions to a dim that holds n_runs runs so far, clipped to those from `at` on within
 * [0, n_out). Joins them with the previous run if they continue it. The caller provides the
 * room. */
void aci_remap_add(aci_dim_map *d, int64_t at, int64_t from, int64_t step, int64_t count);
/* Empties a dim of its runs and gives it n_out positions. */
void aci_remap_begin(aci_dim_map *d, int64_t n_out);
/* y (contiguous, the maps' n_out) from the elements at x, of y's dtype. fill: one element. NULL if
 * no run fills. Changes m. UNSUPPORTED on devices other than the CPU if a dim has runs of its
 * own. */
ac_status aci_remap_run(ac_frame *f, ac_tensor *y, const void *x, aci_remap *m, const void *fill,
                        ac_err *e);

#endif
