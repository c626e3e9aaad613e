/* One map of positions per dim, for the CPU's remap.c and device modules. */
#ifndef ACI_OPS_REMAP_PLAN_H
#define ACI_OPS_REMAP_PLAN_H
#include "accel/opdef.h"
#include "base/hostdev.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Positions [at, at of the next run) of the result show positions from, from + step, ... of x. from
 * < 0: the fill value. */
typedef struct aci_run {
  int64_t at, from, step;
} aci_run;

enum { ACI_OWN_RUNS = 3 };
typedef struct aci_dim_map {
  int64_t n_in, n_out;
  int64_t stride; /* of x, in elements */
  int64_t repeat; /* > 0: position o shows o / repeat, and there are no runs */
  int64_t n_runs;
  aci_run *run; /* own, or memory of the caller */
  aci_run own[ACI_OWN_RUNS];
} aci_dim_map;

/* Runs point into it: not to be copied. */
typedef struct aci_remap {
  int ndim;
  aci_dim_map dim[AC_MAX_DIMS];
} aci_remap;

/* The maps of pad and pad_backward, whose arguments 1 and 2 are pad and mode, for x of this
 * shape. */
ACI_MODULE_API void aci_pad_maps(const ac_frame *f, int ndim, const int64_t *shape,
                                 const int64_t *stride, aci_remap *m);

#ifdef __cplusplus
}
#endif
#endif
