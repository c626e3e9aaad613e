/* What layer_norm and rms_norm share: a row is the elements of the normalised (last) dims. Mean and
 * deviation are not kept but computed again in the backward, from x, which is saved anyway. */
#ifndef ACI_OPS_NORM_H
#define ACI_OPS_NORM_H
#include "ops/reduce/reduce.h"

enum {
  ACI_NORM_X,
  ACI_NORM_SHAPE,
  ACI_NORM_WEIGHT
}; /* arguments of both forwards; the backwards have dy in front */

/* Checks x, normalized_shape and weight or bias (arguments at..at+1, then param and its name); pushes
 * nothing. */
ac_status aci_norm_check(const ac_frame *f, int at, int param, ac_err *e);
/* y := (x - mean) * rstd * weight + bias; rms: y := x * rstd * weight. bias_arg -1: none. */
ac_status aci_norm_run(ac_frame *f, bool rms, int bias_arg, double eps, ac_err *e);
/* Outputs dx, and with a weight dweight, and unless rms dbias. */
ac_status aci_norm_backward_shape(ac_frame *f, bool rms, ac_err *e);
ac_status aci_norm_backward_run(ac_frame *f, bool rms, double eps, ac_err *e);
/* Bit mask over the last n of ndim dims. */
static inline uint32_t aci_norm_mask(int ndim, int n) { return (uint32_t)(((1ull << n) - 1) << (ndim - n)); }

#endif
